"""Files of a ZooKeeper server in Apache's formats: transaction log and snapshots, recovery, retention.

Imports `zookeeper.tree`, `zookeeper.txns`, `zookeeper.wire` and `common`. Begin with the table at the top of
`txn_recovery.py`, then `file_store.py`.
"""
