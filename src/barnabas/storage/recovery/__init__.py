"""Opening of logs at startup: which parts are scanned or cut off, and what is missing or damaged.

Owns the recovery table, recovery points, the inventory of segments and lost offsets. Imports `storage` and `records`.
Begin with the table at the top of `recovery.py`.
"""
