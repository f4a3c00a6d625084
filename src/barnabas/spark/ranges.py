"""The range of offsets that one Spark task reads, and the division of ranges into tasks.

`batch_reader.py` and `stream_reader.py` plan the ranges; a task reads its range in `reading.py`, by the requests of
`fetcher.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from barnabas.common.types import ZERO_UUID, TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """[first_offset, end_offset) of one partition.

    `epoch`: the leader epoch in which the range was planned, -1 if unknown; a batch of a later one inside the range did
    not exist then. `leader`: the leader at that time, a hint that saves the task one request.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    epoch: int = -1
    topic_id: bytes = ZERO_UUID
    leader: tuple[str, int] | None = None

    @property
    def size(self) -> int:
        return self.end_offset - self.first_offset

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RangePartition(InputPartition):
    """A range for a task; a module-level class, because Spark's workers must unpickle it."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.value: OffsetRange = value


def cut(ranges: Iterable[OffsetRange], min_partitions: int, max_records: int | None) -> list[OffsetRange]:
    """Returns at least `min_partitions` ranges if there are as many records, none above `max_records`.

    The largest ranges are divided first, each into parts of about the same size.
    """
    wanted = [each for each in ranges if each.size > 0]
    if max_records is not None:
        wanted = [part for each in wanted for part in _parts(each, -(-each.size // max_records))]
    if len(wanted) >= min_partitions:
        return wanted
    total = sum(each.size for each in wanted)
    counts = _counts([each.size for each in wanted], total, min_partitions)
    return [part for each, count in zip(wanted, counts, strict=True) for part in _parts(each, count)]


def _counts(sizes: list[int], total: int, wanted: int) -> list[int]:
    """Returns the number of parts into which each range is divided: in proportion to its size, in total `wanted` or
    more if records suffice.
    """
    counts = [max(1, wanted * size // total) for size in sizes]
    while sum(counts) < min(wanted, total):
        largest = max(range(len(sizes)), key=lambda index: sizes[index] / counts[index])
        counts[largest] += 1
    return counts


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [whole.first_offset + whole.size * index // count for index in range(count + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, first, end, whole.epoch, whole.topic_id, whole.leader)
        for first, end in pairwise(edges)
        if first < end
    ]


def limited(available: Mapping[TopicPartition, tuple[int, int]], records: int) -> dict[TopicPartition, int]:
    """Returns end offsets such that about `records` are read, in proportion to the partitions' sizes, without
    starvation.

    `available`: (first offset, end offset). The sum is at most `records`, or one for each partition if there are more
    partitions.
    """
    sizes = [end - first for first, end in available.values() if end > first]
    total = sum(sizes)
    if total <= records:
        return {partition: end for partition, (_, end) in available.items()}
    # Each partition gets one record, and the rest is divided in proportion.
    left, others = max(0, records - len(sizes)), total - len(sizes)
    return {
        partition: first + 1 + (left * (end - first - 1) // others if others else 0) if end > first else end
        for partition, (first, end) in available.items()
    }
