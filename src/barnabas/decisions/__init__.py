"""The pure decisions about partitions: who leads, who is in sync, where replicas are placed.

Functions over one partition as a value, and over what is known about the brokers. Every kind of controller decides by
them, and `barnabas.whatif` predicts by them. They know no image, no request and no store, and import only `protocol`
and `common`. Begin with `partition.py`, then `partition_change.py` and `broker_events.py`.
"""
