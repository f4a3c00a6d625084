"""The znodes in which Apache Kafka 3.9.1 keeps its metadata: codecs, paths, and their metadata records.

Imports `metadata`, `protocol` and `common` only. `paths.py` lists the znodes; each other module has the codecs of one
kind; `tree_records.py` turns a tree into metadata records, `image_znodes.py` an image into znodes. Encoders write the
bytes that Kafka 3.9.1 writes. Begin with `kinds.py`.
"""
