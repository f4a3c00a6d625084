"""The parts of a Produce request beyond the append to one partition.

Owns the shortcut for repeated requests, the writes of one request, and the producers and offsets of transactions.
Imports `broker.requests` and `broker.peers`. Begin with `produce_writes.py`.
"""
