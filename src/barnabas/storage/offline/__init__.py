"""Offline tools for log directories: dump, verify and repair without a running broker (`barnabas log`).

Imports `storage`, `records` and `protocol`. Begin with `verify.py`; `repair.py` plans from its findings.
"""
