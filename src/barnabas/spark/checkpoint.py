"""The progress of a stream, in the form that Spark keeps in the checkpoint.

    {"version": 1,
     "topics": {"orders": {"id": "<topic id>", "partitions": {"0": {"offset": 120, "epoch": 4}, ...}}},
     "lost": [...]}

`offset` is the first one not yet read. `epoch` is the leader epoch in which the log was known to reach there: an
election that truncated the log below `offset` has a higher epoch that begins below it, which reveals it (KIP-320).
`from` is present if this micro-batch does not begin where the last one ended: after a loss, or with a new partition.
`lost` lists what was found lost when this micro-batch was planned, so that planning it again after a crash gives the
same result.

Spark takes two equal texts for "no new data", so the order of keys is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.common.errors import ConfigError
from barnabas.common.types import TopicPartition
from barnabas.spark.losses import LossCause, LostRange

VERSION = 1


class Position(NamedTuple):
    """The progress of a stream in one partition. Epoch -1 is unknown; `begin` None means where the last micro-batch
    ended.
    """

    offset: int
    epoch: int = -1
    begin: int | None = None


class Progress(NamedTuple):
    """The progress of a stream in all partitions. Topic ids are texts, empty if the cluster has none."""

    positions: dict[TopicPartition, Position]
    topic_ids: dict[str, str]
    lost: tuple[LostRange, ...] = ()

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for partition in sorted(self.positions):
            topic = topics.setdefault(
                partition.topic, {"id": self.topic_ids.get(partition.topic, ""), "partitions": {}}
            )
            position = self.positions[partition]
            entry = {"offset": position.offset, "epoch": position.epoch}
            if position.begin is not None:
                entry["from"] = position.begin
            topic["partitions"][str(partition.partition)] = entry
        found: dict[str, Any] = {"version": VERSION, "topics": topics}
        if self.lost:
            found["lost"] = [_lost_to_json(each) for each in self.lost]
        return found


def from_json(value: Mapping[str, Any]) -> Progress:
    """Returns the progress in a checkpoint.

    Raises:
        ConfigError: the checkpoint was not written by this source.
    """
    try:
        if value["version"] != VERSION:
            raise ConfigError(
                f"the checkpoint has version {value['version']}, but this source reads version {VERSION}: "
                "continue with the release that wrote it, or begin with a new checkpoint"
            )
        positions, topic_ids = {}, {}
        for name, topic in value["topics"].items():
            topic_ids[str(name)] = str(topic["id"])
            for index, entry in topic["partitions"].items():
                begin = entry.get("from")
                positions[TopicPartition(str(name), int(index))] = Position(
                    int(entry["offset"]), int(entry["epoch"]), None if begin is None else int(begin)
                )
        return Progress(positions, topic_ids, tuple(_lost_from_json(each) for each in value.get("lost", ())))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"the checkpoint was not written by this source ({error!r}): a query that moves here from another source "
            "needs a new checkpointLocation, and startingOffsets to continue at its offsets"
        ) from error


def _lost_to_json(lost: LostRange) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": lost.topic,
        "partition": lost.partition,
        "first": lost.first_offset,
        "cause": lost.cause.value,
        "read": lost.was_read,
        "id": lost.topic_id,
    }
    if lost.end_offset is not None:
        found["end"] = lost.end_offset
    return found


def _lost_from_json(value: Mapping[str, Any]) -> LostRange:
    end = value.get("end")
    return LostRange(
        topic=str(value["topic"]),
        partition=int(value["partition"]),
        first_offset=int(value["first"]),
        end_offset=None if end is None else int(end),
        cause=LossCause(value["cause"]),
        was_read=bool(value["read"]),
        topic_id=str(value["id"]),
    )


def spans(start: Progress, end: Progress) -> Iterator[tuple[TopicPartition, int, int, int]]:
    """Yields (partition, first offset, end offset, epoch) of each non-empty range between two offsets of a stream."""
    for partition, position in sorted(end.positions.items()):
        begin = position.begin
        if begin is None:
            begin = start.positions[partition].offset if partition in start.positions else position.offset
        if begin < position.offset:
            yield partition, begin, position.offset, position.epoch
