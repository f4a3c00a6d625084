"""The state of a cluster: columns over the partitions, one version, and one change set for each version.

    table.apply(delta)            a poll, a page, an event or a record: returns what changed, None if nothing did
    table.apply_volumes(seen)     sizes and offsets from one broker
    table.rows, .states, .volumes the live rows, and the columns that they index
    table.severities()            by live row
    table.since(version)          the change sets after that version
    table.state(row)              one row as a value

Rows keep their number as long as their partition exists. All feeds write to one table, and all views read it. An answer
of a poll can be older than what the table knows: it does not replace a higher leader epoch, nor what an exact feed
delivered shortly before. A topic that was deleted by an exact feed, or replaced by one of the same name, does not
return under its old id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat, takewhile
from typing import Final

import numpy as np

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.columns import UNKNOWN, IntArray, States, unpacked
from barnabas.monitor.delta import NO_TOPIC_ID, Delta, TopicName, VolumesSeen
from barnabas.monitor.ladder import SeverityArray, severities
from barnabas.monitor.partition_state import PartitionState, ReplicaDetail
from barnabas.monitor.severity import Severity
from barnabas.monitor.table_state import TableState
from barnabas.monitor.table_update import TableUpdate
from barnabas.monitor.topics import Topic
from barnabas.monitor.volumes_update import write_volumes

#: Changed rows in the change sets that are kept for readers that lag behind.
_ROWS_KEPT_MAX: Final = 60_000
_NO_DETAILS: Final[Mapping[int, ReplicaDetail]] = {}


class ClusterTable(TableState):
    def __init__(self) -> None:
        super().__init__()
        self._severities: tuple[int, SeverityArray] | None = None
        self._order: tuple[int, IntArray] | None = None
        self._kept: deque[ChangeSet] = deque()
        self._kept_rows = 0
        self._readers: list[Callable[[ChangeSet], None]] = []

    def __len__(self) -> int:
        return len(self.rows)

    # -- writing

    def apply(self, delta: Delta) -> ChangeSet | None:
        """Writes a delta. Returns the change set of the new version; None if nothing changed."""
        change_set = TableUpdate(self, delta).run()
        self.time_ms = max(self.time_ms, delta.time_ms)
        return self._published(change_set)

    def apply_volumes(self, seen: VolumesSeen) -> ChangeSet | None:
        """Writes sizes and offsets. Returns the change set of the new version; None if nothing changed."""
        rows = write_volumes(self, seen)
        self.time_ms = max(self.time_ms, seen.time_ms)
        if not len(rows):
            return None
        return self._published(TableUpdate(self, Delta(seen.time_ms)).change_set(volume_rows=rows))

    def subscribe(self, reader: Callable[[ChangeSet], None]) -> Callable[[], None]:
        """Calls `reader` with each change set from now on. Returns a function that ends that."""
        self._readers.append(reader)
        return lambda: self._readers.remove(reader)

    def _published(self, change_set: ChangeSet | None) -> ChangeSet | None:
        if change_set is None:
            return None
        self.version = change_set.version
        self._kept.append(change_set)
        self._kept_rows += _size(change_set)
        while self._kept_rows > _ROWS_KEPT_MAX and len(self._kept) > 1:
            self._kept_rows -= _size(self._kept.popleft())
        for reader in tuple(self._readers):
            reader(change_set)
        return change_set

    # -- reading

    def severities(self) -> SeverityArray:
        """Returns the severity of each partition in `rows`."""
        if self._severities is None or self._severities[0] != self.version:
            self._severities = (self.version, severities(self.states.take(self.rows), self.silent))
        return self._severities[1]

    @property
    def severity(self) -> Severity:
        found = self.severities()
        return Severity(int(found.max())) if len(found) else Severity.OK

    def counts(self) -> dict[Severity, int]:
        """Returns how many partitions are in each state."""
        found = np.bincount(self.severities(), minlength=len(Severity))
        return {severity: int(found[severity]) for severity in Severity}

    def topic_of(self, row: int) -> Topic:
        return self.topics.by_number[int(self.states.topic[row])]

    def in_order(self, rows: IntArray | None = None) -> IntArray:
        """Returns rows (default: all) by name and partition."""
        chosen = self.rows if rows is None else rows
        ranks = self.topics.ranks()[self.states.topic[chosen]]
        return chosen[np.lexsort((self.states.partition[chosen], ranks))]

    def by_severity(self) -> IntArray:
        """Returns the rows, the worst first; among equals, internal topics last."""
        if self._order is not None and self._order[0] == self.version:
            return self._order[1]
        topics = self.states.topic[self.rows]
        order = np.lexsort(
            (
                self.states.partition[self.rows],
                self.topics.ranks()[topics],
                self.topics.internal()[topics],
                -self.severities().astype(np.int16),
            )
        )
        self._order = (self.version, self.rows[order])
        return self._order[1]

    def since(self, version: int) -> list[ChangeSet] | None:
        """Returns the change sets after a version; None if they are not kept any more, or the version never was."""
        if version == self.version:
            return []
        if version > self.version or not self._kept or self._kept[0].version > version + 1:
            return None
        return [each for each in self._kept if each.version > version]

    def changes_of(self, row: int, since_ms: int) -> list[ChangeSet]:
        """Returns the kept versions after a time that created or changed a row, the newest first."""
        recent = takewhile(lambda each: each.time_ms > since_ms, reversed(self._kept))
        return [each for each in recent if row in each.rows or row in each.created_rows]

    def state(self, row: int) -> PartitionState:
        """Returns one row as a value, with its sizes and lags."""
        return next(self.values(np.array([row], np.int32)))

    def values(self, rows: Iterable[int] | None = None) -> Iterator[PartitionState]:
        """Yields rows as values (default: all, by name)."""
        chosen = self.in_order() if rows is None else np.array(list(rows), np.int32)
        topics = np.unique(self.states.topic[chosen]).tolist()
        names = {number: self.topics.by_number[number].identity for number in topics}
        yield from values_of(self.states.take(chosen), names, self.silent, self._details(chosen))

    def _details(self, rows: IntArray) -> Iterator[dict[int, ReplicaDetail]]:
        volumes = self.volumes
        for replicas, *columns in zip(
            self.states.replicas[rows].tolist(),
            volumes.end_offset[rows].tolist(),
            volumes.size[rows].tolist(),
            volumes.reported_lag[rows].tolist(),
            strict=True,
        ):
            yield {
                replica: ReplicaDetail(_known(end), _known(size), _known(lag))
                for replica, end, size, lag in zip(replicas, *columns, strict=True)
                if replica != UNKNOWN and (end, size, lag) != (UNKNOWN, UNKNOWN, UNKNOWN)
            }


def values_of(
    states: States,
    topics: Mapping[int, TopicName],
    silent: frozenset[int] = frozenset(),
    details: Iterable[Mapping[int, ReplicaDetail]] | None = None,
) -> Iterator[PartitionState]:
    """Yields rows of columns as values. `details` are the sizes and offsets of each row's replicas."""
    scalars = zip(
        states.topic.tolist(),
        states.partition.tolist(),
        states.leader.tolist(),
        states.leader_epoch.tolist(),
        states.min_isr.tolist(),
        strict=True,
    )
    lists = zip(_lists(states.replicas), _lists(states.isr), _lists(states.offline), strict=True)
    shown = repeat(_NO_DETAILS) if details is None else details
    for scalar, (replicas, isr, offline), detail in zip(scalars, lists, shown, strict=False):
        topic, partition, leader, epoch, min_isr = scalar
        name, topic_id = topics[topic]
        yield PartitionState(
            topic=name,
            partition=partition,
            leader=leader,
            leader_epoch=epoch,
            replicas=replicas,
            isr=isr,
            topic_id=b"" if topic_id == NO_TOPIC_ID else topic_id,
            min_isr=_known(min_isr),
            offline_replicas=offline,
            silent=tuple(each for each in replicas if each in silent) if silent else (),
            details=detail,
        )


def _lists(column: IntArray) -> Iterator[tuple[int, ...]]:
    """Yields the lists of a column. Equal ones, of which a cluster has many, share one tuple."""
    shared: dict[bytes, tuple[int, ...]] = {}
    for row in column:
        key = row.tobytes()
        found = shared.get(key)
        if found is None:
            found = shared[key] = unpacked(row)
        yield found


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _size(change_set: ChangeSet) -> int:
    parts: Sequence[IntArray] = (change_set.rows, change_set.created_rows, change_set.removed_rows)
    return 1 + sum(map(len, chain(parts)))
