"""Decisions of every kind of controller: from a request or an event and the image to records, response and cause.

Pure functions over a `ControllerView`. They do not depend on where records are written, when they are committed, or how
brokers show that they are alive. May import the packages below the controller, not `kraft`, `zookeeper` or `raft`.
Begin with `result.py` and `view.py`, then `partitions.py`.
"""
