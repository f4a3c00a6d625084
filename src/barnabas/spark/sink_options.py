"""The options of the sink, and the columns that it can write; checked when the query is planned.

Columns with other names are ignored, as by Spark's Kafka sink. `kafka.*` is passed to librdkafka, under its names; keys
of the Java producer that have another name there are renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import types as spark

from barnabas.common.errors import ConfigError
from barnabas.protocol.client_security import PREFIXES
from barnabas.spark.option_values import OptionReader, addresses, refused
from barnabas.spark.producer_security import producer_security

_JAVA_NAMES = {
    "max.request.size": "message.max.bytes",
}
#: Keys of the Java producer without an effect in librdkafka.
_WITHOUT_MEANING = frozenset({"max.block.ms", "send.buffer.bytes"})
_REFUSED = {
    "key.serializer": "keys are strings or bytes; cast the column instead",
    "value.serializer": "values are strings or bytes; cast the column instead",
    "transactional.id": "the sink is at-least-once; dropReplays at the reader drops what came twice",
    "enable.idempotence": "it is always on",
    "acks": "it is always all",
}
_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",
    "linger.ms": "20",
    "queue.buffering.max.messages": "500000",
    "client.id": "barnabas-spark",
    "log_level": "3",
}
#: Options that Spark itself adds for every sink.
_OF_SPARK = ("path", "checkpointLocation", "queryName", "mode")
_TEXT_OR_BYTES = (spark.StringType, spark.BinaryType)
_COLUMNS = ("key", "value", "topic", "partition", "headers")


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink. `columns` are the names of the rows' columns, in order. If `topic` is None, each row names
    its topic.
    """

    producer: tuple[tuple[str, str], ...] = field(repr=False)
    topic: str | None
    marks_origin: bool
    columns: tuple[str, ...]

    @property
    def bootstrap(self) -> str:
        return dict(self.producer)["bootstrap.servers"]


def parse(options: Mapping[str, str], schema: spark.StructType, *, overwrite: bool) -> SinkOptions:
    """Parses the options of the sink. Raises ConfigError."""
    if overwrite:
        raise ConfigError("mode overwrite is not allowed: a log is only appended to; use mode append")
    reader = OptionReader(options)
    bootstrap = reader.required("kafka.bootstrap.servers", "the brokers' addresses, host:port,host:port")
    addresses("kafka.bootstrap.servers", bootstrap)
    topic = reader.text("topic")
    marks_origin = reader.flag("originHeader", True)
    producer = _DEFAULTS | {"bootstrap.servers": bootstrap} | _producer(reader.with_prefix("kafka."))
    for key in _OF_SPARK:
        reader.text(key)
    if reader.rest():
        raise ConfigError(f"option {reader.rest()[0]} is not known; the options are topic, originHeader and kafka.*")
    columns = _columns(schema, topic)
    return SinkOptions(tuple(sorted(producer.items())), topic, marks_origin, columns)


def _producer(given: dict[str, str]) -> dict[str, str]:
    found = producer_security(given)
    for key, value in given.items():
        if key.startswith(PREFIXES):
            continue
        if key in _REFUSED:
            raise ConfigError(f"option kafka.{key} is not allowed: {_REFUSED[key]}")
        if key not in _WITHOUT_MEANING:
            found[_JAVA_NAMES.get(key, key)] = value
    return found


def _columns(schema: spark.StructType, topic: str | None) -> tuple[str, ...]:
    by_name = {field.name.lower(): field.dataType for field in schema.fields}
    for name, kind in by_name.items():
        if name in _COLUMNS and not _fits(name, kind):
            raise ConfigError(
                f"column {name} of type {kind.simpleString()} cannot be written; a record consists of "
                "key and value string or binary, topic string, partition int, "
                "headers array<struct<key string, value binary>>"
            )
    if "value" not in by_name:
        raise ConfigError(f"the rows have no column value; they have {', '.join(by_name)}")
    if topic is None and "topic" not in by_name:
        raise ConfigError("no target topic: set option topic, or write rows with a column topic")
    if topic is not None and not topic.strip():
        raise refused("topic", topic, "expected the name of a topic")
    return tuple(by_name)


def _fits(name: str, kind: spark.DataType) -> bool:
    match name:
        case "key" | "value":
            return isinstance(kind, _TEXT_OR_BYTES)
        case "topic":
            return isinstance(kind, spark.StringType)
        case "partition":
            return isinstance(kind, spark.IntegerType)
        case "headers":
            if not isinstance(kind, spark.ArrayType) or not isinstance(kind.elementType, spark.StructType):
                return False
            fields = kind.elementType.fields
            return (
                len(fields) == 2
                and isinstance(fields[0].dataType, spark.StringType)
                and isinstance(fields[1].dataType, spark.BinaryType)
            )
    return False
