"""The cluster's metadata: immutable images, the deltas between them, and their metadata records.

Imports `protocol` and `common` only. Begin reading with `image.py`; `store.py` publishes the images.
"""
