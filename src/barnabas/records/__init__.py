"""Record batches: their encoding, compression, the walk over their records, and the leader's validation.

May import `common` only. Begin with `header.py` (the layout), then `batch.py`, and `validate.py` for
what a leader accepts.
"""
