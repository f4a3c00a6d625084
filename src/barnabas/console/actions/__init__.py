"""The actions on a cluster. Each one checks its arguments, then says what it would do, or does it.

Imports `console.watched`, the views and the messages of the protocol. Begin with `topics.py`.
"""
