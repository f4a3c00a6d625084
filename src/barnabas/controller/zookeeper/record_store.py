"""The metadata of an active controller as two images, and decisions on their way from one to the other.

    image      with all decisions, written or not: the next decision builds on it
    committed  with those that ZooKeeper has acknowledged: the state that brokers and clients get

    decision --replay--> image --units--> FencedWriter --acknowledged, in the order of the decisions--> committed

Records read from znodes take the same way, without units, so that they are committed after the decisions before them. A
decision whose writes found unexpected content in ZooKeeper is committed without those records, and `on_conflict` gets
their topics: the image of these topics is wrong until they are read again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.common.host import Clock
from barnabas.controller.requests.result import Cause, Versioned
from barnabas.controller.zookeeper.assignment_texts import AssignmentTexts
from barnabas.controller.zookeeper.decision_writes import WriteContext, units_of
from barnabas.controller.zookeeper.fenced_writer import Conflict, FencedWriter, Unit
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.znodes import paths
from barnabas.zookeeper.wire.codes import ANY_VERSION, OpCode

#: A callback that gets the topics, and the keys of other units, whose writes found unexpected content; none if all was
#: written.
Settled = Callable[[frozenset[str]], None]
#: The bits of an offset that count the changes of one controller epoch; the epoch is above them, so that offsets order
#: the changes of all controllers.
_COUNT_BITS: Final = 32
#: A partition: topic id and number.
_Place = tuple[bytes, int]


class StoreEvents(NamedTuple):
    """The callbacks of a store."""

    #: A change, the image after it, and the cause of the decision; None if other programs made the change.
    on_commit: Callable[[MetadataDelta, MetadataImage, Cause | None], None]
    on_conflict: Callable[[frozenset[str]], None]


class ReadPartitions(NamedTuple):
    """Partitions of a topic as read from znodes, without a record for each: there can be thousands."""

    topic_id: bytes
    partitions: Mapping[int, PartitionImage]
    #: Partition -> epoch of the controller that wrote its state.
    epochs: Mapping[int, int] = MappingProxyType({})


@dataclass(slots=True)
class _Pending:
    """A decision that is not committed yet."""

    records: Sequence[Message]
    keys: frozenset[str]
    settled: Settled | None = None
    cause: Cause | None = None
    read: ReadPartitions | None = None
    was_read: bool = False
    is_settled: bool = False
    conflicts: Sequence[Conflict] = ()


class RecordStore:
    """Stores the metadata of the active controller in one controller epoch. Nothing happens after `close`."""

    def __init__(self, writer: FencedWriter, controller_epoch: int, clock: Clock, events: StoreEvents) -> None:
        self.image: MetadataImage = replace(EMPTY_IMAGE, offset=controller_epoch << _COUNT_BITS)
        self.committed: MetadataImage = self.image
        #: The data versions of znodes that the image does not have: assignments, the block of producer ids.
        self.versions: dict[str, int] = {}
        self.texts = AssignmentTexts()
        self._writer = writer
        self._controller_epoch = controller_epoch
        self._clock = clock
        self._events = events
        self._queue: deque[_Pending] = deque()
        self._keys: Counter[str] = Counter()
        #: The number of decisions about each topic: a read is discarded if it has changed meanwhile.
        self._decided: Counter[str] = Counter()
        #: The partitions whose state another controller wrote, with its epoch.
        self._foreign: dict[_Place, int] = {}
        self._is_advancing = False
        self._is_closed = False

    def epoch_of(self, topic_id: bytes, partition_id: int) -> int:
        """Returns the epoch of the controller that wrote the state of a partition."""
        return self._foreign.get((topic_id, partition_id), self._controller_epoch)

    def version_of(self, path: str) -> int:
        """Returns the data version that a write of this znode expects."""
        return self.versions.get(path, ANY_VERSION)

    def is_pending(self, key: str) -> bool:
        """Returns whether a decision about this topic is not committed."""
        return self._keys[key] > 0

    def decisions_about(self, key: str) -> int:
        return self._decided[key]

    def propose(self, records: Sequence[Versioned], settled: Settled | None = None, cause: Cause | None = None) -> None:
        """Writes a decision, and applies it to the image. Calls `settled` when it is committed, after all earlier
        decisions.
        """
        before = self.image
        after = self._replayed([record for record, _ in records])
        context = WriteContext(self._controller_epoch, before, after, self.texts, self.version_of)
        self.write(list(units_of(context, records)), [record for record, _ in records], settled, after, cause=cause)

    def write(
        self,
        units: Sequence[Unit],
        records: Sequence[Message],
        settled: Settled | None = None,
        after: MetadataImage | None = None,
        *,
        read: ReadPartitions | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Writes these units, which make the changes of the records. If the records were read from znodes, `read` has
        the partitions that were read with them. All of them are committed when the units are written.
        """
        if self._is_closed:
            return
        self.image = self._replayed(records, read) if after is None else after
        self._note_versions(units)
        keys = frozenset(unit.key for unit in units)
        self._enqueue(_Pending(records, keys, settled, cause, read, was_read=read is not None), units)

    def take(
        self,
        records: Iterable[Message],
        read: ReadPartitions | None = None,
        *,
        key: str | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Applies records, and then partitions, that were read from znodes; `key` is the topic that they belong to."""
        if self._is_closed:
            return
        found = list(records)
        self.image = self._replayed(found, read)
        keys = frozenset() if key is None else frozenset({key})
        self._enqueue(_Pending(found, keys, None, cause, read, was_read=True), ())

    def leave(self, removed: RemoveTopicRecord) -> None:
        """Removes a topic from the image, so that no further decision is made about it. Brokers still know the topic
        until `write` has written the record.
        """
        self.image = self._replayed([removed])

    def found_version(self, path: str, version: int) -> None:
        """Records the data version of a znode with a key of its own, as it was read."""
        self.versions[path] = version
        self._writer.was_read(path)

    def discard(self, name: str) -> None:
        """Removes a topic's unwritten changes from the image, since its znodes were read or are gone. No decision about
        it may be uncommitted.
        """
        assert not self.is_pending(name), name
        self._writer.was_read(name)
        known, written = self.image.topics_by_name.get(name), self.committed.topics_by_name.get(name)
        if known == written:
            return
        by_name, by_id = self.image.topics_by_name, self.image.topics_by_id
        if known is not None:
            by_name, by_id = by_name.delete(name), by_id.delete(known.topic_id)
        if written is not None:
            by_name, by_id = by_name.set(name, written), by_id.set(written.topic_id, written)
        self.image = replace(self.image, topics_by_name=by_name, topics_by_id=by_id)

    def after_all(self, settled: Settled) -> None:
        """Calls `settled` when all decisions so far are committed."""
        if not self._is_closed:
            self._enqueue(_Pending((), frozenset(), settled), ())

    def close(self) -> None:
        self._is_closed = True
        self._queue.clear()

    def _note_versions(self, units: Sequence[Unit]) -> None:
        """Records the versions of znodes that the store itself writes."""
        for unit in units:
            for write in unit.writes:
                if write.op is OpCode.SET_DATA and write.path in self.versions:
                    self.versions[write.path] += 1
                elif write.op is OpCode.CREATE and write.path == paths.topic(unit.key):
                    self.versions[write.path] = 0
                    self._writer.was_read(unit.key)

    def _replayed(self, records: Sequence[Message], read: ReadPartitions | None = None) -> MetadataImage:
        delta = _delta(self.image, records, read)
        return delta.apply(self.image.offset + 1, self._controller_epoch, self._clock.wall_ms())

    def _enqueue(self, pending: _Pending, units: Sequence[Unit]) -> None:
        self._queue.append(pending)
        self._keys.update(pending.keys)
        self._decided.update(pending.keys)
        if units:
            self._writer.write(units, partial(self._on_settled, pending))
        else:
            self._on_settled(pending, ())

    def _on_settled(self, pending: _Pending, conflicts: Sequence[Conflict]) -> None:
        pending.is_settled = True
        pending.conflicts = tuple(conflicts)
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._queue and self._queue[0].is_settled:
                self._commit(self._queue.popleft())
        finally:
            self._is_advancing = False

    def _commit(self, pending: _Pending) -> None:
        self._keys.subtract(pending.keys)
        lost = frozenset(conflict.unit.key for conflict in pending.conflicts)
        records = self._written(pending)
        read = self._read_of(pending, records)
        if records or read is not None:
            delta = _delta(self.committed, records, read)
            self.committed = delta.apply(self.committed.offset + 1, self._controller_epoch, self._clock.wall_ms())
            self._note_epochs(records, pending)
            self._events.on_commit(delta, self.committed, pending.cause)
        if lost and not self._is_closed:
            self._events.on_conflict(lost)
        if pending.settled is not None and not self._is_closed:
            pending.settled(lost)

    def _written(self, pending: _Pending) -> Sequence[Message]:
        """Returns the records of a decision without those that were not written, and without those about a topic or a
        partition that does not exist because an earlier decision was not written.
        """
        lost = {write.path for conflict in pending.conflicts for write in conflict.unit.writes}
        created: set[bytes] = set()
        found: list[Message] = []
        for record in pending.records:
            if isinstance(record, TopicRecord):
                if paths.topic(record.name) in lost:
                    continue
                created.add(record.topic_id)
            elif isinstance(record, RemoveTopicRecord):
                if record.topic_id not in self.committed.topics_by_id:
                    continue
            elif (
                isinstance(record, PartitionRecord | PartitionChangeRecord)
                and record.topic_id not in created
                and not self._has_place(record, lost)
            ):
                continue
            found.append(record)
        return found

    def _read_of(self, pending: _Pending, records: Sequence[Message]) -> ReadPartitions | None:
        """Returns the partitions that were read, or None if there are none or if their topic no longer exists."""
        read = pending.read
        if read is None or not read.partitions:
            return None
        if any(isinstance(record, TopicRecord) and record.topic_id == read.topic_id for record in records):
            return read
        topic = self.committed.topics_by_id.get(read.topic_id)
        if topic is None or pending.conflicts or min(read.partitions) > len(topic.partitions):
            return None
        return read

    def _has_place(self, record: PartitionRecord | PartitionChangeRecord, lost: set[str]) -> bool:
        topic = self.committed.topics_by_id.get(record.topic_id)
        if topic is None:
            return False
        if isinstance(record, PartitionChangeRecord) and record.partition_id >= len(topic.partitions):
            return False
        return not lost or _is_written(topic.name, record, lost)

    def _note_epochs(self, records: Sequence[Message], pending: _Pending) -> None:
        if pending.read is not None:
            topic_id, _, epochs = pending.read
            own = self._controller_epoch
            self._foreign.update({(topic_id, index): epoch for index, epoch in epochs.items() if epoch != own})
        elif pending.was_read:
            return
        elif self._foreign:
            for record in records:
                if isinstance(record, PartitionRecord | PartitionChangeRecord):
                    self._foreign.pop((record.topic_id, record.partition_id), None)


def _delta(before: MetadataImage, records: Iterable[Message], read: ReadPartitions | None) -> MetadataDelta:
    delta = MetadataDelta(before)
    for record in records:
        delta.replay(record)
    if read is not None and read.partitions:
        delta.topics.replay_partitions(read.topic_id, read.partitions)
    return delta


def _is_written(topic: str, record: PartitionRecord | PartitionChangeRecord, lost: set[str]) -> bool:
    return paths.state(topic, record.partition_id) not in lost and (
        record.replicas is None or paths.topic(topic) not in lost
    )
