"""The group coordinator: groups of both protocols, and the offsets that they commit.

Imports the modules of `coordinators`, and not `coordinators.transactions`. Begin with `coordinator.py`, then
`shard.py`.
"""
