"""Barnabas: a replicated, partitioned log broker cluster that Kafka clients use as if it were Apache Kafka."""

__version__ = "0.1.0"
