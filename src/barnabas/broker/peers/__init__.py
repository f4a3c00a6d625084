"""Requests of a broker to other nodes.

Owns channels to brokers and the active controller, the controller registration, liveness probes and producer ids.
Imports no other package of `broker`. Begin with `controller_access.py`.
"""
