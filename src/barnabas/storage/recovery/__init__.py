"""A log after a start: what is scanned, cut off, missing or damaged.

Owns the recovery table, recovery points, the inventory of segments and lost offsets. Begin with the table at the top of
`recovery.py`.
"""
