"""The broker: the composition root, the dispatcher of requests, and one handler module per API.

Imports every package below it, but neither `server` nor `simulation`, which run it. Begin with `assembly.py`, then
`requests/dispatch.py`.
"""
