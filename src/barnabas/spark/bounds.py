"""The first and last offsets to read, as the options define them; the cluster resolves them later.

    startingOffsets            earliest | latest | {"topic": {"0": 23, "1": -2}}      -2 earliest, -1 latest
    endingOffsets              latest | {"topic": {"0": 50, "1": -1}}                 batch only, exclusive
    startingTimestamp, endingTimestamp                         one timestamp (ms) for all partitions
    startingOffsetsByTimestamp, endingOffsetsByTimestamp       {"topic": {"0": 1000}}

The order of precedence is one timestamp, timestamps by partition, offsets, as in Spark's Kafka source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.common.types import TopicPartition
from barnabas.spark.option_values import OptionReader, partition_numbers, refused

LATEST = -1
EARLIEST = -2


@dataclass(frozen=True)
class Bound:
    """A rule for all partitions, or one for each.

    `option` is the key it was read from. With `is_timestamp` the numbers are ms, else offsets, LATEST or EARLIEST.
    """

    option: str
    everywhere: int | None = None
    by_partition: dict[TopicPartition, int] = field(default_factory=dict)
    is_timestamp: bool = False
    #: Whether a timestamp later than every record means the end of the log; otherwise it is refused.
    late_is_end: bool = True


def starting(options: OptionReader, default: int) -> Bound:
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    found = _timestamps(options, "startingTimestamp", "startingOffsetsByTimestamp", strategy == "latest")
    text = options.text("startingOffsets")
    if found is not None:
        return found
    if text is None:
        return Bound("startingOffsets", default)
    match text.strip().lower():
        case "earliest":
            return Bound("startingOffsets", EARLIEST)
        case "latest":
            return Bound("startingOffsets", LATEST)
    if not text.lstrip().startswith("{"):
        raise refused("startingOffsets", text, 'expected earliest, latest, or JSON such as {"topic": {"0": 23}}')
    return Bound("startingOffsets", None, partition_numbers("startingOffsets", text, EARLIEST))


def ending(options: OptionReader) -> Bound:
    found = _timestamps(options, "endingTimestamp", "endingOffsetsByTimestamp", True)
    text = options.text("endingOffsets")
    if found is not None:
        return found
    if text is None or text.strip().lower() == "latest":
        return Bound("endingOffsets", LATEST)
    if not text.lstrip().startswith("{"):
        raise refused("endingOffsets", text, 'expected latest, or JSON such as {"topic": {"0": 50, "1": -1}}')
    return Bound("endingOffsets", None, partition_numbers("endingOffsets", text, LATEST))


def _timestamps(options: OptionReader, one_key: str, map_key: str, late_is_end: bool) -> Bound | None:
    one, by_partition = options.maybe_integer(one_key), options.text(map_key)
    if one is not None:
        return Bound(one_key, one, is_timestamp=True, late_is_end=late_is_end)
    if by_partition is not None:
        numbers = partition_numbers(map_key, by_partition, 0)
        return Bound(map_key, None, numbers, is_timestamp=True, late_is_end=late_is_end)
    return None
