"""A deterministic simulator: a whole cluster with clients and faults in one process and in virtual time.

The package can import everything except `server`, `cli` and the client packages; no broker code imports it. Begin
reading with `world.py` (time and events), then `machine.py`, `node.py` and `scenario.py` (a run).
"""
