"""The metadata quorum (KRaft): elections, replication of the metadata log, its snapshots, and changes of the voters.

Imports `metadata`, `storage`, `records`, `protocol` and `common`. Begin reading with `node.py`, then `ready.py`.
"""
