"""Records of the metadata log, applied to the table: each change of a partition, exactly and in order.

Change records name only what changed, so a second table has the state of the log, which no other feed touches. A
leader epoch is one higher for each record that names a leader, a partition epoch for each record. Records of a
transaction are applied when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas.common.errors import DecodeError
from barnabas.common.host import Buffer
from barnabas.monitor.columns import UNKNOWN, unpacked
from barnabas.monitor.delta import Delta, Partitions, Source, TopicName
from barnabas.monitor.table import ClusterTable
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages import records_metadata as r
from barnabas.protocol.wire import read_unsigned_varint

_FRAME_VERSION: Final = 1
_TOPIC_RESOURCE: Final = 2
_MIN_ISR: Final = "min.insync.replicas"
_NO_CHANGE: Final = -2
_COLUMNS: Final = frozenset({"partition_epoch", "elr", "adding", "removing", "directories"})
_CLASSES: Final[tuple[type[Message], ...]] = (
    r.TopicRecord,
    r.PartitionRecord,
    r.PartitionChangeRecord,
    r.RemoveTopicRecord,
    r.ConfigRecord,
    r.RegisterBrokerRecord,
    r.UnregisterBrokerRecord,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.BrokerRegistrationChangeRecord,
    r.ClearElrRecord,
    r.BeginTransactionRecord,
    r.EndTransactionRecord,
    r.AbortTransactionRecord,
)
_BY_TYPE: Final = {each.API_KEY: each for each in _CLASSES}
_OF_BROKERS: Final = (
    r.RegisterBrokerRecord,
    r.UnregisterBrokerRecord,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.BrokerRegistrationChangeRecord,
)


def decode_record(data: Buffer) -> Message | None:
    """Returns the record in a frame; None if it is of a type that the table does not need. Raises DecodeError."""
    frame_version, offset = read_unsigned_varint(data, 0)
    if frame_version != _FRAME_VERSION:
        raise DecodeError(f"a metadata record in frame version {frame_version}")
    record_type, offset = read_unsigned_varint(data, offset)
    version, offset = read_unsigned_varint(data, offset)
    kind = _BY_TYPE.get(record_type)
    if kind is None:
        return None
    if not kind.VERSIONS[0] <= version <= kind.VERSIONS[1]:
        raise DecodeError(f"{kind.NAME} in version {version}")
    return codec.decode(kind, version, data, offset)[0]


class LogRecords:
    """The records of one cluster's metadata log. `only`: the topic that is watched, None for all."""

    def __init__(self, table: ClusterTable, only: str | None) -> None:
        self._table = table
        self._only = only
        self._image = ClusterTable()
        self._names: dict[bytes, str] = {}
        self._directories: dict[bytes, int] = {}
        self._min_isrs: dict[str, int] = {}
        self._open: list[Message] | None = None
        self._partitions = Partitions(_COLUMNS)
        self._keys: set[tuple[str, int]] = set()
        self._time_ms = 0
        #: Whether records are written to the table as they are applied.
        self.is_live = False
        #: Whether the last records were about brokers.
        self.is_about_brokers = False
        self._by_class: dict[type[Message], Callable[[Any], None]] = {
            r.TopicRecord: self._topic,
            r.PartitionRecord: self._partition,
            r.PartitionChangeRecord: self._partition_change,
            r.RemoveTopicRecord: self._remove_topic,
            r.ConfigRecord: self._config,
            r.ClearElrRecord: self._clear_elr,
        }

    def reset(self) -> None:
        """Forgets everything: the log is read from its beginning or from a snapshot, which is older than the table."""
        self._image = ClusterTable()
        self._names.clear()
        self._min_isrs.clear()
        self._open = None
        self.is_live = False

    def go_live(self, time_ms: int) -> None:
        """Writes the state of the log to the table; from now on, each record is written."""
        self.is_live = True
        min_isrs = {name: value for name, value in self._min_isrs.items() if self._is_watched(name)}
        self._table.apply(Delta(time_ms, Source.METADATA_LOG, partitions=self._all(), min_isrs=min_isrs))

    def apply(self, records: Iterable[Message], time_ms: int) -> None:
        """Applies the records of one batch."""
        self.is_about_brokers = False
        self._time_ms = time_ms
        for record in records:
            if isinstance(record, r.BeginTransactionRecord):
                self._open = []
            elif isinstance(record, r.AbortTransactionRecord):
                self._open = None
            elif isinstance(record, r.EndTransactionRecord):
                whole, self._open = self._open or [], None
                for each in whole:
                    self._replay(each)
            elif self._open is not None:
                self._open.append(record)
            else:
                self._replay(record)
        self._flush()

    def _replay(self, record: Message) -> None:
        if isinstance(record, _OF_BROKERS):
            self.is_about_brokers = True
            return
        replay = self._by_class.get(type(record))
        if replay is not None:
            replay(record)

    # -- topics and configurations

    def _topic(self, record: r.TopicRecord) -> None:
        self._names[bytes(record.topic_id)] = record.name

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        self._flush()
        topic_id = bytes(record.topic_id)
        name = self._names.pop(topic_id, None)
        if name is not None:
            self._min_isrs.pop(name, None)
            self._write(Delta(self._time_ms, Source.METADATA_LOG, deleted=[TopicName(name, topic_id)]), name)

    def _config(self, record: r.ConfigRecord) -> None:
        if record.resource_type != _TOPIC_RESOURCE or record.name != _MIN_ISR or not str(record.value or "").isdigit():
            return
        self._flush()
        name = record.resource_name
        self._min_isrs[name] = int(record.value or 0)
        delta = Delta(self._time_ms, Source.METADATA_LOG, min_isrs={name: self._min_isrs[name]})
        self._write(delta, name)

    # -- partitions

    def _partition(self, record: r.PartitionRecord) -> None:
        self._add(
            bytes(record.topic_id),
            record.partition_id,
            record.leader,
            record.leader_epoch,
            record.replicas,
            record.isr,
            partition_epoch=record.partition_epoch,
            elr=record.eligible_leader_replicas or (),
            adding=record.adding_replicas,
            removing=record.removing_replicas,
            directories=self._numbers(record.directories),
        )

    def _partition_change(self, record: r.PartitionChangeRecord) -> None:
        topic_id = bytes(record.topic_id)
        name = self._names.get(topic_id)
        if (name, record.partition_id) in self._keys:
            self._flush()
        row = None if name is None else self._image.row_of(name, record.partition_id)
        if row is None:
            self._flush()
            row = None if name is None else self._image.row_of(name, record.partition_id)
            if row is None:
                raise DecodeError("a change of a partition that does not exist")
        states = self._image.states
        changes_leader = record.leader != _NO_CHANGE

        def changed(value: Any, column: str) -> Any:
            return unpacked(getattr(states, column)[row]) if value is None else value

        directories = record.directories
        self._add(
            topic_id,
            record.partition_id,
            record.leader if changes_leader else int(states.leader[row]),
            int(states.leader_epoch[row]) + changes_leader,
            changed(record.replicas, "replicas"),
            changed(record.isr, "isr"),
            partition_epoch=int(states.partition_epoch[row]) + 1,
            elr=changed(record.eligible_leader_replicas, "elr"),
            adding=changed(record.adding_replicas, "adding"),
            removing=changed(record.removing_replicas, "removing"),
            directories=changed(None if directories is None else self._numbers(directories), "directories"),
        )

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        self._flush()
        rows = [
            int(row)
            for row in self._image.rows
            if record.topic_name in ("", self._image.topic_of(row).name) and self._image.states.elr[row][0] != UNKNOWN
        ]
        for row in rows:
            topic = self._image.topic_of(row).identity.topic_id
            partition = int(self._image.states.partition[row])
            self._partition_change(
                r.PartitionChangeRecord(
                    topic_id=topic, partition_id=partition, eligible_leader_replicas=[], last_known_elr=[]
                )
            )

    def _numbers(self, directories: Iterable[bytes]) -> list[int]:
        return [self._directories.setdefault(bytes(each), len(self._directories)) for each in directories]

    def _add(self, topic_id: bytes, partition: int, *state: Any, **columns: Any) -> None:
        name = self._names[topic_id]
        if (name, partition) in self._keys:
            self._flush()
        identity = TopicName(name, topic_id)
        if not self._partitions.topics or self._partitions.topics[-1] != identity:
            self._partitions.add_topic(name, topic_id, is_complete=False)
        self._partitions.add(partition, *state, **columns)
        self._keys.add((name, partition))

    # -- writing

    def _flush(self) -> None:
        if not self._keys:
            return
        partitions, self._partitions = self._partitions, Partitions(_COLUMNS)
        self._keys.clear()
        delta = Delta(self._time_ms, Source.METADATA_LOG, partitions=partitions)
        self._image.apply(delta)
        if self._only is not None:
            delta.partitions = partitions.only(self._only)
        if self.is_live:
            self._table.apply(delta)

    def _write(self, delta: Delta, name: str) -> None:
        self._image.apply(delta)
        if self.is_live and self._is_watched(name):
            self._table.apply(delta)

    def _is_watched(self, name: str) -> bool:
        return self._only is None or self._only == name

    def _all(self) -> Partitions:
        """Returns all partitions of the log."""
        found = Partitions(_COLUMNS)
        states = self._image.states
        for topic in self._image.topics:
            if not self._is_watched(topic.name):
                continue
            found.add_topic(*topic.identity, is_complete=True)
            for row in topic.rows.tolist():
                found.add(
                    int(states.partition[row]),
                    int(states.leader[row]),
                    int(states.leader_epoch[row]),
                    unpacked(states.replicas[row]),
                    unpacked(states.isr[row]),
                    partition_epoch=int(states.partition_epoch[row]),
                    elr=unpacked(states.elr[row]),
                    adding=unpacked(states.adding[row]),
                    removing=unpacked(states.removing[row]),
                    directories=unpacked(states.directories[row]),
                )
        return found
