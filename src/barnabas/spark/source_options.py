"""All options of the source, checked when the data frame is created: `load` reports a wrong one, not a task.

Names and meanings are those of Spark's Kafka source; docs/spark.md lists them and the additional ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import DataType

from barnabas.common.errors import ConfigError
from barnabas.common.types import TopicPartition
from barnabas.spark import bounds, schema, value_options
from barnabas.spark.bounds import Bound
from barnabas.spark.client_options import client_settings
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.consumer_keys import check_rest
from barnabas.spark.option_values import OptionReader, partition_lists, pattern, refused
from barnabas.spark.typed_values import ValueFormat

#: Options of Spark's own source without an effect here: accepted and ignored.
_WITHOUT_MEANING = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
_KNOWN = [
    "assign",
    "columnNameOfCorruptRecord",
    "columns",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "groupId",
    "includeHeaders",
    "lostRangesPath",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "pushFilters",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "dropReplays",
    "valueMode",
    "valueSchema",
]
_DELAY = re.compile(r"\s*(\d+)\s*(ms|s|m|h)?\s*")
_DELAY_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, None: 1}


@dataclass(frozen=True)
class Subscription:
    """The topics to read; exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class FetchSettings:
    """The settings of a task's fetches."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 4 * 1024 * 1024
    read_committed: bool = False


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source for a batch or a stream."""

    client: ClientSettings
    subscription: Subscription
    fetch: FetchSettings
    starting: Bound
    ending: Bound
    columns: tuple[str, ...]
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    group_id: str | None
    push_filters: bool
    drop_replays: bool
    lost_ranges_path: str | None
    #: The format in which values are read if valueSchema is given.
    value_format: ValueFormat | None = None


def parse(options: Mapping[str, str], *, is_stream: bool, value_type: DataType | None = None) -> SourceOptions:
    """Returns the options. By default a stream begins at the latest offsets, a batch at the earliest; only a batch
    ends.

    `value_type`: the type of the column value, as Spark has parsed valueSchema.

    Raises:
        ConfigError: an option is wrong or unknown.
    """
    reader = OptionReader(options)
    client = client_settings(reader)
    subscription = _subscription(reader)
    starting = bounds.starting(reader, bounds.LATEST if is_stream else bounds.EARLIEST)
    ending = bounds.ending(reader)
    if is_stream and ending != Bound("endingOffsets", bounds.LATEST):
        raise ConfigError(f"option {ending.option} is not allowed for a stream, which has no end")
    if not is_stream and starting.everywhere == bounds.LATEST and not starting.is_timestamp:
        raise refused("startingOffsets", "latest", "a batch from the end of the log would always be empty")
    columns = _columns(reader)
    found = SourceOptions(
        client=client,
        subscription=subscription,
        fetch=_fetch_settings(reader),
        starting=starting,
        ending=ending,
        columns=columns,
        max_offsets_per_trigger=reader.maybe_integer("maxOffsetsPerTrigger", 1),
        min_offsets_per_trigger=reader.maybe_integer("minOffsetsPerTrigger", 1),
        max_trigger_delay_ms=_delay_ms(reader),
        min_partitions=reader.integer("minPartitions", 0, 1),
        max_records_per_partition=reader.maybe_integer("maxRecordsPerPartition", 1),
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        group_id=reader.text("groupId"),
        push_filters=reader.flag("pushFilters", False),
        drop_replays=reader.flag("dropReplays", False),
        lost_ranges_path=reader.text("lostRangesPath"),
        value_format=value_options.value_format(reader, columns, value_type),
    )
    low, high = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise refused("minOffsetsPerTrigger", low, f"expected at most maxOffsetsPerTrigger ({high})")
    _check_rest(reader)
    return found


def _subscription(reader: OptionReader) -> Subscription:
    given = {key: reader.text(key) for key in ("subscribe", "subscribePattern", "assign")}
    named = [(key, value) for key, value in given.items() if value is not None]
    if len(named) != 1:
        shown = " and ".join(key for key, _ in named) or "none"
        raise ConfigError(f"exactly one of subscribe, subscribePattern and assign is needed; given: {shown}")
    [(key, value)] = named
    if key == "subscribe":
        names = OptionReader({key: value}).names(key)
        return Subscription(topics=names or ())
    if key == "subscribePattern":
        return Subscription(pattern=pattern(key, value))
    return Subscription(partitions=partition_lists(key, value))


def _columns(reader: OptionReader) -> tuple[str, ...]:
    include_headers = reader.flag("includeHeaders", False)
    names = reader.names("columns")
    if names is None:
        return schema.ALL_COLUMNS if include_headers else schema.COLUMNS
    by_lower = {name.lower(): name for name in schema.ALL_COLUMNS}
    for name in names:
        if name.lower() not in by_lower:
            raise refused("columns", ",".join(names), f"{name} is not one of {', '.join(schema.ALL_COLUMNS)}")
    found = tuple(dict.fromkeys(by_lower[name.lower()] for name in names))
    return (*found, schema.HEADERS) if include_headers and schema.HEADERS not in found else found


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the columns of a reader with these options; it ignores the other options."""
    return _columns(OptionReader(options))


def _fetch_settings(reader: OptionReader) -> FetchSettings:
    default = FetchSettings()
    isolation = reader.choice("kafka.isolation.level", "read_uncommitted", ("read_uncommitted", "read_committed"))
    high = (1 << 30) - 1
    return FetchSettings(
        max_wait_ms=reader.integer("kafka.fetch.max.wait.ms", default.max_wait_ms, 0, high),
        min_bytes=reader.integer("kafka.fetch.min.bytes", default.min_bytes, 0, high),
        max_bytes=reader.integer("kafka.max.partition.fetch.bytes", default.max_bytes, 1, high),
        read_committed=isolation == "read_committed",
    )


def _delay_ms(reader: OptionReader) -> int:
    text = reader.text("maxTriggerDelay", "15m")
    assert text is not None
    match = _DELAY.fullmatch(text.lower())
    if match is None:
        raise refused("maxTriggerDelay", text, "expected a time such as 30s, 15m or 500ms")
    return int(match[1]) * _DELAY_UNITS_MS[match[2]]


def _check_rest(reader: OptionReader) -> None:
    for key in _WITHOUT_MEANING:
        reader.text(key)
    check_rest(sorted(reader.with_prefix("kafka.")))
    rest = reader.rest()
    if rest:
        close = difflib.get_close_matches(rest[0], [key.lower() for key in _KNOWN], 1)
        near = next((key for key in _KNOWN if close and key.lower() == close[0]), None)
        hint = f"; did you mean {near}?" if near else f"; the options are {', '.join(sorted(_KNOWN))} and kafka.*"
        raise ConfigError(f"option {rest[0]} is not known{hint}")
