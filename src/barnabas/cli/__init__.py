"""The command line: one module per command, and what they share (addresses, options, tables, failures).

Commands that connect to a cluster are ordinary Kafka clients; those that work on files or start nodes import
the broker's packages (decision 0009). Begin reading with `entry.py`, then `app.py`.
"""
