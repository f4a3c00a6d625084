"""The controller in ZooKeeper mode: reads the metadata under watches, writes decisions as fenced multis, sends them to
brokers.

Owns the claim of `/controller`, the fence by `/controller_epoch`, what a refused or lost write means, and the requests
LeaderAndIsr, UpdateMetadata and StopReplica. May import `controller.requests`, `znodes` and `zookeeper`, not `kraft` or
`raft`. Begin with `runtime.py` and `lifecycle.py`, then `active_controller.py`, `record_store.py` and
`fenced_writer.py`.
"""
