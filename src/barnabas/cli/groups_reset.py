"""The targets of `reset-offsets`, as Kafka's kafka-consumer-groups tool defines them.

An offset that is given directly, by a shift or in a file is moved into the log if it lies outside.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.cli.lines import parse_time
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure

Offsets = dict[TopicPartition, int]

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class ResetMethod(Enum):
    """The ways to specify the new offsets of a reset, named after the command's options (--to-earliest, --shift-by,
    ...).
    """

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    TIME = "--to-datetime or --by-duration"
    SHIFT = "--shift-by"
    OFFSET = "--to-offset"
    FILE = "--from-file"


class Goal(NamedTuple):
    """The target of a reset. `value` is a time in milliseconds, a shift, or an offset."""

    method: ResetMethod
    value: int = 0
    #: Group -> offsets, from a file.
    rows: Mapping[str, Mapping[TopicPartition, int]] | None = None


class Logs(Protocol):
    """The port to the start and end offsets of the logs. A partition whose leader did not answer is missing from the
    results.
    """

    def starts(self, partitions: Collection[TopicPartition]) -> Offsets: ...
    def ends(self, partitions: Collection[TopicPartition]) -> Offsets: ...
    def since(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Offsets: ...


def new_offsets(
    goal: Goal, group: str, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int], logs: Logs
) -> Offsets:
    """Returns the new offset of each of `partitions`, all of which have leaders. Raises Failure if there is nothing to
    shift.
    """
    if goal.method is ResetMethod.EARLIEST:
        return logs.starts(partitions)
    if goal.method is ResetMethod.LATEST:
        return logs.ends(partitions)
    if goal.method is ResetMethod.CURRENT:
        return {**logs.ends(partitions), **{each: committed[each] for each in partitions if each in committed}}
    if goal.method is ResetMethod.TIME:
        # If no record is that recent, start with the next one to arrive.
        return {**logs.ends(partitions), **logs.since(partitions, goal.value)}
    if goal.method is ResetMethod.FILE:
        requested = dict((goal.rows or {}).get(group, {}))
        return _within({each: requested[each] for each in partitions}, logs)
    if goal.method is ResetMethod.OFFSET:
        return _within(dict.fromkeys(partitions, goal.value), logs)
    without = [str(each) for each in partitions if each not in committed]
    if without:
        raise Failure(f"cannot shift offsets that group {group} has not committed: {', '.join(without)}")
    return _within({each: committed[each] + goal.value for each in partitions}, logs)


def _within(requested: Offsets, logs: Logs) -> Offsets:
    starts, ends = logs.starts(requested), logs.ends(requested)
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in requested.items()}


def parse_duration_ms(text: str) -> int:
    """Parses "P1DT2H30M", "PT0.5S", or "30s", "10m", "2h", "7d"."""
    found = _DURATION.fullmatch(text)
    if found is not None and any(found.groups()):
        return round(sum(float(value) * _UNITS_MS[unit] for unit, value in found.groupdict().items() if value))
    if not re.fullmatch(r"\d+[smhd]", text):
        raise Failure(f"not a duration: {text}", "give PT30S, PT10M, P1DT2H, or 30s, 10m, 2h, 7d")
    return -parse_time(text, 0)


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """Parses "orders" or "orders:0,1" into a topic and its partitions; None stands for all."""
    topic, colon, indexes = text.partition(":")
    if not topic or (colon and not all(index.isdigit() for index in indexes.split(","))):
        raise Failure(f"--topic {text}: expected TOPIC or TOPIC:0,1,2")
    return topic, [int(index) for index in indexes.split(",")] if colon else None


def parse_rows(lines: Iterable[str], groups: Sequence[str]) -> dict[str, Offsets]:
    """Parses Kafka's CSV: topic,partition,offset for one group, or group,topic,partition,offset for several."""
    found: dict[str, Offsets] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and len(groups) == 1:
            cells.insert(0, groups[0])
        if len(cells) != 4 or not cells[2].isdigit() or not cells[3].isdigit():
            wanted = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise Failure(f"line {number} of the file: expected {wanted}")
        group, topic, index, offset = cells
        found.setdefault(group, {})[TopicPartition(topic, int(index))] = int(offset)
    return found


def to_rows(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """Returns the CSV that `parse_rows` reads."""
    several = len(offsets) > 1
    return [
        ",".join([group] * several + [topic, str(index), str(offset)])
        for group, chosen in offsets.items()
        for (topic, index), offset in sorted(chosen.items())
    ]
