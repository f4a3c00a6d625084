"""Where Spark looks for `format("barnabas")`: a module `pyspark_*` with a `DefaultSource` needs no registration."""

from barnabas.spark.source import BarnabasSource as DefaultSource

__all__ = ["DefaultSource"]
