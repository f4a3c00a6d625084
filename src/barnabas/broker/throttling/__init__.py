"""Client quotas: the rates of clients, and the throttling of those above their quota.

Owns the rates of this broker's clients and what one request adds to them. Imports no other package of the broker.
Begin with `client_throttles.py`.
"""
