"""The metrics of partitions as text and gzip, kept in blocks of 50 topics until one of them changes.

A family is one sequence of blocks, because Prometheus wants its lines together. Gzip allows members to follow each
other (RFC 1952), so that a scrape of a cluster in which nothing changed only joins them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.columns import UNKNOWN, IntArray
from barnabas.monitor.ladder import severities
from barnabas.monitor.table import ClusterTable

TOPICS_PER_BLOCK: Final = 50
#: Fast, and within a fifth of the size of slower levels.
_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS

Values = NDArray[Any]


class Family(NamedTuple):
    """A metric with one sample for each partition. Negative values mean "unknown" and are left out, unless the metric
    can be negative (`has_negative`).
    """

    name: str
    help: str
    values: Callable[[ClusterTable, IntArray], Values]
    is_volume: bool = False
    has_negative: bool = False


def _in_sync(table: ClusterTable, rows: IntArray) -> Values:
    found: Values = (table.states.isr[rows] != UNKNOWN).sum(axis=1)
    return found


def _replicas(table: ClusterTable, rows: IntArray) -> Values:
    found: Values = (table.states.replicas[rows] != UNKNOWN).sum(axis=1)
    return found


def _size(table: ClusterTable, rows: IntArray) -> Values:
    sizes = table.volumes.size[rows]
    is_leader = table.states.replicas[rows] == table.states.leader[rows][:, None]
    is_leader &= table.states.replicas[rows] != UNKNOWN
    found: Values = np.where(is_leader.any(axis=1), np.where(is_leader, sizes, UNKNOWN).max(axis=1), sizes.max(axis=1))
    return found


#: The names and meanings of kafka_exporter, so that dashboards made for it work; and our own.
FAMILIES: Final = (
    Family(
        "kafka_topic_partition_current_offset",
        "Current offset of a partition: the end that consumers see",
        lambda table, rows: table.volumes.high_watermark[rows],
        is_volume=True,
    ),
    Family(
        "kafka_topic_partition_oldest_offset",
        "Oldest offset of a partition",
        lambda table, rows: table.volumes.start_offset[rows],
        is_volume=True,
    ),
    Family("kafka_topic_partition_in_sync_replica", "Number of in-sync replicas of a partition", _in_sync),
    Family(
        "kafka_topic_partition_leader",
        "Leader of a partition; -1 if it has none",
        lambda table, rows: table.states.leader[rows],
        has_negative=True,
    ),
    Family(
        "kafka_topic_partition_leader_is_preferred",
        "1 if a partition is led by its preferred replica",
        lambda table, rows: (table.states.leader[rows] == table.states.replicas[rows, 0]).astype(np.int8),
    ),
    Family("kafka_topic_partition_replicas", "Number of replicas of a partition", _replicas),
    Family(
        "kafka_topic_partition_under_replicated_partition",
        "1 if a replica of a partition is not in sync",
        lambda table, rows: (_in_sync(table, rows) < _replicas(table, rows)).astype(np.int8),
    ),
    Family(
        "barnabas_partition_severity",
        "0 in sync, 1 under-replicated, 2 at min ISR, 3 under min ISR, 4 offline or its leader silent",
        lambda table, rows: severities(table.states.take(rows), table.silent),
    ),
    Family("barnabas_partition_size_bytes", "Size of the leader's log of a partition", _size, is_volume=True),
)


class MetricBlocks:
    """The blocks of metrics text of one table, updated when the table changes."""

    def __init__(self, table: ClusterTable) -> None:
        self._table = table
        self._labels: dict[int, tuple[IntArray, list[str]]] = {}
        self._kept: dict[tuple[int, int, bool], bytes] = {}
        #: Blocks that were rendered, for tests and measurements.
        self.rendered = 0
        table.subscribe(self._on_change)

    def blocks(self) -> list[int]:
        return sorted({number // TOPICS_PER_BLOCK for number in self._table.topics.by_number})

    def pieces(self, *, is_gzip: bool) -> Iterator[bytes]:
        """Yields all families, block by block. The caller can do other work in between."""
        for index, family in enumerate(FAMILIES):
            head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} gauge\n".encode()
            yield packed(head) if is_gzip else head
            for block in self.blocks():
                yield self._block(index, block, is_gzip)

    def _block(self, index: int, block: int, is_gzip: bool) -> bytes:
        key = (index, block, is_gzip)
        found = self._kept.get(key)
        if found is None:
            text = self._text(FAMILIES[index], block)
            found = self._kept[key] = packed(text) if is_gzip else text
            self.rendered += 1
        return found

    def _text(self, family: Family, block: int) -> bytes:
        rows, labels = self._labels_of(block)
        values = family.values(self._table, rows).tolist()
        name = family.name
        if family.has_negative:
            lines = [f"{name}{label}{value}\n" for label, value in zip(labels, values, strict=True)]
        else:
            lines = [f"{name}{label}{value}\n" for label, value in zip(labels, values, strict=True) if value >= 0]
        return "".join(lines).encode()

    def _labels_of(self, block: int) -> tuple[IntArray, list[str]]:
        """Returns the rows of a block, and their labels."""
        found = self._labels.get(block)
        if found is None:
            rows: list[int] = []
            labels: list[str] = []
            first = block * TOPICS_PER_BLOCK
            for number in range(first, first + TOPICS_PER_BLOCK):
                topic = self._table.topics.by_number.get(number)
                if topic is None:
                    continue
                shown = escaped(topic.name)
                for partition, row in enumerate(topic.rows_by_partition):
                    if row != UNKNOWN:
                        rows.append(row)
                        labels.append(f'{{partition="{partition}",topic="{shown}"}} ')
            found = self._labels[block] = np.array(rows, np.int32), labels
        return found

    def _on_change(self, change: ChangeSet) -> None:
        if change.silent_before != change.silent_after:
            self._drop(set(self.blocks()), lambda family: not family.is_volume)
        anew = {number // TOPICS_PER_BLOCK for number in change.created.topic.tolist()}
        anew |= {number // TOPICS_PER_BLOCK for number in change.removed.topic.tolist()}
        for block in anew:
            self._labels.pop(block, None)
        self._drop(anew, lambda family: True)
        # A size is that of the leader's log, so it follows the state too.
        self._drop({number // TOPICS_PER_BLOCK for number in change.after.topic.tolist()}, lambda family: True)
        volumes = self._table.states.topic[change.volume_rows].tolist()
        self._drop({number // TOPICS_PER_BLOCK for number in volumes}, lambda family: family.is_volume)

    def _drop(self, blocks: set[int], is_concerned: Callable[[Family], bool]) -> None:
        if not blocks:
            return
        for index, family in enumerate(FAMILIES):
            if is_concerned(family):
                for block in blocks:
                    self._kept.pop((index, block, True), None)
                    self._kept.pop((index, block, False), None)


def packed(text: bytes) -> bytes:
    """Returns a gzip member."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(text) + packer.flush()


def escaped(value: str) -> str:
    """Returns the value of a label as Prometheus's format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
