"""SASL without I/O: the log-ins of clients, and the mechanisms by which a broker checks them.

`logins.py` is the side of a client, `mechanism.py` what the mechanisms of a broker have in common.
"""
