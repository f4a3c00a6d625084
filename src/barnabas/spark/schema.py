"""The columns that a reader returns: those of Spark's Kafka source, with the same names and types.

    key, value binary | topic string | partition int | offset bigint | timestamp timestamp | timestampType int
    headers array<struct<key string, value binary>>, with includeHeaders=true; null for a record without headers

Spark requires the Arrow schema of the first record batch to equal its own exactly; `ARROW` is what it expects.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as spark

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
VALUE = "value"
ALL_COLUMNS = (*COLUMNS, HEADERS)

_HEADER_STRUCT = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ARROW: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER_STRUCT)),
}

_SPARK: dict[str, spark.DataType] = {
    "key": spark.BinaryType(),
    "value": spark.BinaryType(),
    "topic": spark.StringType(),
    "partition": spark.IntegerType(),
    "offset": spark.LongType(),
    "timestamp": spark.TimestampType(),
    "timestampType": spark.IntegerType(),
    "headers": spark.ArrayType(
        spark.StructType([spark.StructField("key", spark.StringType()), spark.StructField("value", spark.BinaryType())])
    ),
}


def spark_schema(columns: Sequence[str]) -> spark.StructType:
    return spark.StructType([spark.StructField(name, _SPARK[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW[name]) for name in columns])
