"""The entry point of `format("barnabas")`: Spark finds a module `pyspark_*` with a `DefaultSource` by its name."""

from barnabas.spark.source import BarnabasSource as DefaultSource

__all__ = ["DefaultSource"]
