"""`barnabas configs`: shows and changes the dynamic configs of topics, brokers and their loggers.

Imports `cli.clients`, `cli.options` and `protocol`: it sends its own requests over `monitor.broker_connection`. Begin
with `command.py`, then `access.py`.
"""
