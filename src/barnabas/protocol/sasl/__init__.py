"""SASL without I/O: the log-ins of clients, and the mechanisms by which a broker checks them.

Imports only the standard library. `logins.py` is the side of a client; begin with `mechanism.py` for that of a broker.
"""
