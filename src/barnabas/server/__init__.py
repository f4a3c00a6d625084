"""The host in production: sockets, files, threads and the clock, on asyncio.

Imports `broker` and the packages below it. Begin reading with `main.py`, then `host.py` and `listener.py`.
"""
