"""The base of all packages: the ports to clock, timers, randomness, disk and links; errors; configuration; metrics.

Imports no other package. Begin reading with `host.py` and `errors.py`.
"""
