"""The command line: one module per command, and what they share (addresses, options, tables, failures).

Commands that connect to a cluster are ordinary Kafka clients. Begin reading with `entry.py`, then `app.py`.
"""
