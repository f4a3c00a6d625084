"""A Spark data source and sink for Kafka clusters: batches are fetched and decoded in Python, directly to Arrow.

The package is a client: it imports `common`, `protocol`, `records` and `tls`, and nothing of a broker. Begin reading
with `source.py`, then `stream_reader.py` (planning) and `reading.py` (a task).
"""
