"""Coordinators of groups and transactions: replicated state machines on the partitions of internal topics.

Imports `common`, `protocol`, `records` and their own sub-packages. Begin with `runtime.py`, then
`groups/coordinator.py` or `transactions/coordinator.py`.
"""
