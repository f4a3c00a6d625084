"""The data tree: znodes with their Stats, ephemerals, quotas and ACLs; `apply` is deterministic.

Imports `zookeeper.txns` and `zookeeper.wire`. Begin with `data_tree.py`.
"""
