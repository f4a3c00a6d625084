"""Log directories looked at and repaired without a broker: `barnabas log dump|verify|repair`.

Imports `storage` and `records`. Begin with `verify.py`; `repair.py` plans from its findings.
"""
