"""Small worlds: a few nodes with short timeouts and bare clients under faults. They find the most faults per CPU
second.

`replicated.py` is the cluster of most worlds, and of tests; the explorers run a seed each. The package can import what
`simulation` can. Begin reading with `replication_explorer.py`, or, for the quorum alone, with `quorum_world.py`.
"""
