"""Storage: the logs of partitions on disk, with their indexes, producers, epochs and checkpoints.

Imports `common`, `records` and `protocol`. Begin with `log.py` (one log) or `log_manager.py` (all logs of a broker).
"""
