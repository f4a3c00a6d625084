"""The security of the console: users, sessions, roles by route, and the checks of every request.

Imports nothing of the console but `problems`. Begin with `rights.py`, the table of routes and roles, then `gate.py`.
"""
