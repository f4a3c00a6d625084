"""A request from its frame to its response.

Owns connections, the dispatcher that finds the handler, long work in steps, forwarding to the controller and the memory
budget. Imports `broker.peers`, and handlers only by their registered names. Begin with `dispatch.py`.
"""
