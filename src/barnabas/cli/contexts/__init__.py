"""Contexts: named clusters with their addresses and client settings, kept in a file of the user.

Imports `cli.clients` and `embedded`; every command that connects to a cluster imports it. Begin with `choice.py`, then
`store.py`.
"""
