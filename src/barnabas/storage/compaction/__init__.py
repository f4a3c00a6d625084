"""Compaction: which logs are due, which records stay, and the swap of segments.

Imports `storage` only. Begin with `cleaner.py`.
"""
