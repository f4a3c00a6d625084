"""Opening of logs after a start: what is scanned, cut off, missing or damaged.

Owns the recovery table, recovery points, the inventory of segments and lost offsets. Imports `storage` and `records`.
Begin with the table at the top of `recovery.py`.
"""
