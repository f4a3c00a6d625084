"""Replication: the roles of this broker's replicas, HW and ISR, follower fetches, waiting requests, quotas, moves.

May import the packages up to `storage` and `metadata`, not `raft` or `controller`. Begin with `partition.py`, then
`leadership.py` (ISR and HW), `replica_manager.py` (all replicas) and `fetcher.py` (following).
"""
