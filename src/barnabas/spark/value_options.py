"""The options of typed values: valueSchema, valueMode, columnNameOfCorruptRecord.

Spark parses a schema in DDL: the source returns its own schema as DDL, and Spark passes back the parsed types. One in
JSON (of `StructType.json()`) is parsed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import types as spark

from barnabas.common.errors import ConfigError
from barnabas.spark import schema
from barnabas.spark.option_values import OptionReader, refused
from barnabas.spark.typed_values import MODES, ValueFormat, check

_SCHEMA, _MODE, _CORRUPT = "valueSchema", "valueMode", "columnNameOfCorruptRecord"


def with_values(columns: spark.StructType, options: Mapping[str, str]) -> spark.StructType | str:
    """Returns the source's schema: with valueSchema, `value` is a struct."""
    text = OptionReader(options).text(_SCHEMA)
    if text is None or schema.VALUE not in columns.names:
        return columns
    if text.lstrip().startswith("{"):
        kind = _of_json(text)
        return spark.StructType(
            [spark.StructField(each.name, kind) if each.name == schema.VALUE else each for each in columns.fields]
        )
    ddl = text.strip()
    kinds = {each.name: each.dataType.simpleString() for each in columns.fields}
    kinds[schema.VALUE] = ddl if ddl.lower().startswith("struct<") else f"struct<{ddl}>"
    return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())


def _of_json(text: str) -> spark.StructType:
    try:
        return spark.StructType.fromJson(json.loads(text))
    except (PySparkException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise refused(_SCHEMA, text, f"expected a schema as DDL or as StructType.json() ({error!r})") from None


def value_format(reader: OptionReader, columns: Sequence[str], value_type: spark.DataType | None) -> ValueFormat | None:
    """Returns the format of values; None without valueSchema. Raises ConfigError."""
    text, mode = reader.text(_SCHEMA), reader.choice(_MODE, MODES[0], MODES)
    corrupt_column = reader.text(_CORRUPT, "_corrupt_record")
    assert corrupt_column is not None
    if text is None:
        return None
    if schema.VALUE not in columns:
        raise ConfigError(f"option {_SCHEMA}: the column value is not among the requested columns")
    if not isinstance(value_type, spark.StructType):
        raise ConfigError(f"option {_SCHEMA}: the value is read as a struct; its fields are named as in 'id bigint'")
    check(value_type, corrupt_column)
    return ValueFormat(value_type, mode, corrupt_column)
