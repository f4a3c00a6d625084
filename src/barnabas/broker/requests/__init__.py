"""A request from its frame to its answer.

Owns connections, the gate that finds the handler, long work in steps, forwarding to the controller and the budget of
memory. Imports `broker.peers`, never handlers, except by their registered names. Begin with `dispatch.py`.
"""
