"""Compaction: chooses the logs that are due, filters their records, and swaps the segments.

Imports `storage` and `records`. Begin with `cleaner.py`.
"""
