"""TLS for our own clients: contexts created from the files that a client's properties name.

Imports `protocol.client_security` only; the Spark source and the monitor import it. Begin with `contexts.py`.
"""
