"""The broker's side of ZooKeeper mode: what it learns from the controller and from ZooKeeper becomes changes of the
image.

Owns the feed of LeaderAndIsr, UpdateMetadata and StopReplica. May import `replication`, `metadata`, `zookeeper` and
`znodes`, not `controller`. Begin with `controller_feed.py`.
"""
