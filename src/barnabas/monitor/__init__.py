"""The replica monitor: each partition's leader, replicas, ISR and lag, live, of any Kafka cluster.

    cluster --queries--> Snapshot --diff--> Change --pending (the journal)--> a line

`snapshot`, `changes`, `event_matching` and `lines` are plain values and functions; `broker_connection` and
`cluster_reader` query the brokers, `watch` does so repeatedly. The monitor is an ordinary client: it sends only
requests that any client can send. Imports `common`, `protocol`, `records` and `tls`. Begin with `snapshot.py`, then
`watch.py`.
"""
