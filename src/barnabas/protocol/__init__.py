"""Kafka's wire protocol: messages in all versions, headers, frames, and the client half of a connection, without I/O.

The package imports only `common`. Begin reading with `message.py` and `codec.py`; `messages/` is generated from Kafka's
schemas by tools/generate_messages.py.
"""
