"""Classic groups: members, generations and rebalances of the protocol before KIP-848.

Imports `coordinators.groups.shard_context` and the packages below. Begin with the table of states in `group.py`.
"""
