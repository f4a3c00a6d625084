"""Events of the journal, applied to the table.

The journal can be behind a poll, and then delivers what the table already has. So an event of a partition is applied
only if its state before is the table's, or its epochs are higher; if its state after is the table's, it only confirms
it. An event that fits neither shows that something was missed. New topics are taken from the journal only if the event
is younger than the watch: an old one could be about a topic that was deleted since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from barnabas.common.bulk_events import is_bulk
from barnabas.common.types import uuid_from_text
from barnabas.monitor.bulk_transitions import Transitions
from barnabas.monitor.changes import Event
from barnabas.monitor.columns import UNKNOWN, IntArray, unpacked
from barnabas.monitor.delta import NO_TOPIC_ID, Delta, Partitions, Rows, Source, TopicName
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.topics import Topic

_COLUMNS: Final = frozenset({"partition_epoch", "elr", "adding", "removing"})
#: Changed partitions that one version has at most: to apply them takes some 20 ms.
_ROWS_PER_VERSION: Final = 4_000
_NEW_PARTITIONS: Final = frozenset({"topic-created", "partitions-added"})
#: Events after which the list of brokers is asked for.
_OF_BROKERS: Final = frozenset(
    {"broker-registered", "broker-unfenced", "broker-fenced", "controlled-shutdown", "broker-unregistered"}
)


class JournalEvents:
    """Applies events of the journal to the table. `only`: the topic that is watched, None for all. `begin_ms`: when the
    watch began.
    """

    def __init__(self, table: ClusterTable, only: str | None, begin_ms: int) -> None:
        self._table = table
        self._only = only
        self._begin_ms = begin_ms
        self._batch = Partitions(_COLUMNS)
        self._in_batch: set[tuple[str, int]] = set()
        #: The metadata offset of the bulk events in the batch; None if it has events of single partitions.
        self._bulk_offset: int | None = None
        self._time_ms = 0
        self.has_gap = False

    def apply(self, events: Iterable[Event]) -> None:
        """Applies events, in their order. `has_gap` then shows whether an event was missed."""
        for _ in self.steps(list(events)):
            pass

    def steps(self, events: Sequence[Event]) -> Iterator[None]:
        """Applies events as `apply` does, and yields whenever it has done some milliseconds of work. A decision about
        very many partitions becomes several versions of about the same size.
        """
        self.has_gap = False
        cuts = _cuts(events)
        for number, event in enumerate(events):
            self._take(event)
            if number in cuts:
                self._flush()
                yield
        self._flush()

    def _take(self, event: Event) -> None:
        kind = event["kind"]
        if kind == "journal-gap":
            self.has_gap = True
        elif kind == "controller-change":
            self._write(Delta(event["time_ms"], Source.JOURNAL, controller=event.get("controller")))
        elif is_bulk(event):
            self._change_many(event)
        elif self._only not in (None, event.get("topic")):
            return
        elif kind in _NEW_PARTITIONS:
            self._create(event)
        elif kind == "topic-deleted":
            self._write(Delta(event["time_ms"], Source.JOURNAL, deleted=[_identity(event)]))
        elif "partition" in event and "before" in event and "after" in event:
            self._change(event)

    def _change(self, event: Event) -> None:
        topic, partition, after = str(event["topic"]), int(event["partition"]), event["after"]
        if (topic, partition) in self._in_batch or self._bulk_offset is not None:
            self._flush()
        fits = self._fits(topic, partition, event)
        if fits is None:
            return
        if not fits:
            self.has_gap = True
            return
        identity = _identity(event)
        if not self._batch.topics or self._batch.topics[-1] != identity:
            self._batch.add_topic(*identity, is_complete=False)
        self._batch.add(
            partition,
            after["leader"],
            after["leader_epoch"],
            after["replicas"],
            after["isr"],
            partition_epoch=after.get("partition_epoch", UNKNOWN),
            **{name: after.get(name, ()) for name in ("elr", "adding", "removing")},
        )
        self._in_batch.add((topic, partition))
        self._time_ms = event["time_ms"]

    def _change_many(self, event: Event) -> None:
        """Applies a bulk event. Those of one decision are about different partitions, and make one version together."""
        if self._bulk_offset != event["metadata_offset"]:
            self._flush()
            self._bulk_offset = event["metadata_offset"]
        places: list[int] = []
        topics: list[int] = []
        for number, (name, topic_id, _, count) in enumerate(event["topics"]):
            begin, known = len(places), None
            if self._only in (None, name):
                known = self._known_topic(TopicName(name, _topic_id(topic_id)))
            topics += [number] * count
            if known is None:
                places += [UNKNOWN] * count
            else:
                rows = known.rows_by_partition
                places += [
                    rows[partition] if partition < len(rows) else self._missing()
                    for partition in event["partition"][begin : begin + count]
                ]
        self._add_rows(event, topics, self._continuing(event, topics, np.array(places, np.int32)))
        self._time_ms = event["time_ms"]

    def _known_topic(self, identity: TopicName) -> Topic | None:
        """Returns the topic; None if the table does not have it, or has another topic with its name."""
        known = self._table.topics.by_name.get(identity.name)
        self.has_gap |= known is None
        return known if known is not None and _is_same_topic(known.identity, identity) else None

    def _missing(self) -> int:
        self.has_gap = True
        return UNKNOWN

    def _continuing(self, event: Event, topics: list[int], places: IntArray) -> list[int]:
        """Returns the rows of a bulk event that continue the table's state. Notes a gap."""
        states = self._table.states
        is_known = places != UNKNOWN
        epochs, known = np.array(event["leader_epoch"], np.int32), states.leader_epoch[places]
        partition_epochs, known_partition_epochs = event["partition_epoch"], states.partition_epoch[places]
        is_same = is_known & (known == epochs)
        is_newer = is_known & (known < epochs) | is_same & (known_partition_epochs < partition_epochs)
        doubtful = np.flatnonzero(is_same & (known_partition_epochs == UNKNOWN))
        if len(doubtful):
            # Without an epoch of the partition, the state itself shows whether the event continues it.
            steps, own = Transitions(event, states.width), places[doubtful]
            numbers = np.array(event["transition"], np.int32)[doubtful]
            present = states.leader_epoch[own]
            fits = steps.before.agrees(numbers, present, states, own) | steps.after.agrees(
                numbers, present, states, own
            )
            is_newer[doubtful] = fits
            self.has_gap |= not fits.all()
        found: list[int] = np.flatnonzero(is_newer).tolist()
        return found

    def _add_rows(self, event: Event, topics: list[int], rows: list[int]) -> None:
        """Adds rows of a bulk event to the batch."""
        last = UNKNOWN
        indexes = []
        for row in rows:
            if topics[row] != last:
                last = topics[row]
                # A row continues only a topic that the table has.
                self._batch.add_topic(*self._table.topics.by_name[event["topics"][last][0]].identity, is_complete=False)
            indexes.append(len(self._batch.topics) - 1)
        states = [each["after"] for each in event["transitions"]]
        numbers, partition = event["transition"], event["partition"]
        leader_epoch, partition_epoch = event["leader_epoch"], event["partition_epoch"]
        after = [states[numbers[row]] for row in rows]
        self._batch.extend(
            Rows(
                indexes,
                [
                    (partition[row], state["leader"], leader_epoch[row], partition_epoch[row])
                    for row, state in zip(rows, after, strict=True)
                ],
                [state["replicas"] for state in after],
                [state["isr"] for state in after],
                {name: [state.get(name, ()) for state in after] for name in ("elr", "adding", "removing")},
            )
        )

    def _fits(self, topic: str, partition: int, event: Event) -> bool | None:
        """Returns whether the event continues the table's state; None if the table is newer."""
        row = self._table.row_of(topic, partition)
        if row is None or not _is_same_topic(self._table.topics.by_name[topic].identity, _identity(event)):
            return False if row is None else None
        states, after = self._table.states, event["after"]
        leader_epoch, epoch = int(states.leader_epoch[row]), int(states.partition_epoch[row])
        if after["leader_epoch"] != leader_epoch:
            return True if after["leader_epoch"] > leader_epoch else None
        if epoch != UNKNOWN and "partition_epoch" in after:
            return True if after["partition_epoch"] > epoch else None
        leader = int(states.leader[row])
        current = (leader, set(unpacked(states.isr[row])), unpacked(states.replicas[row]))
        return current in (_compared(event["before"]), _compared(after))

    def _create(self, event: Event) -> None:
        name, first = str(event["topic"]), event.get("first_partition")
        known = self._table.topics.by_name.get(name)
        if first is None or "replicas" not in event:
            return
        if known is None and event["time_ms"] < self._begin_ms:
            return
        if known is not None and not _is_same_topic(known.identity, _identity(event)):
            self.has_gap = True
            return
        partitions = Partitions(_COLUMNS)
        partitions.add_topic(*_identity(event), is_complete=False)
        rows = zip(event["replicas"], event["leaders"], event["isrs"], strict=True)
        for index, (replicas, leader, isr) in enumerate(rows, first):
            if known is None or known.row_of(index) is None:
                partitions.add(index, leader, 0, replicas, isr, partition_epoch=0)
        if len(partitions):
            self._write(Delta(event["time_ms"], Source.JOURNAL, partitions=partitions))

    def _write(self, delta: Delta) -> None:
        self._flush()
        self._table.apply(delta)

    def _flush(self) -> None:
        if len(self._batch):
            batch, self._batch = self._batch, Partitions(_COLUMNS)
            self._in_batch.clear()
            self._table.apply(Delta(self._time_ms, Source.JOURNAL, partitions=batch))
        self._bulk_offset = None


def is_about_brokers(event: Event) -> bool:
    """Whether the list of brokers can differ after an event."""
    return event["kind"] in _OF_BROKERS


def _cuts(events: Sequence[Event]) -> frozenset[int]:
    """Returns the events after which a version ends: those of one decision are divided evenly, because a small rest
    would be shown apart from the others.
    """
    rows = [len(event["partition"]) if is_bulk(event) else 1 for event in events]
    total = sum(rows)
    parts = -(-total // _ROWS_PER_VERSION)
    found: set[int] = set()
    done = 0
    for number, count in enumerate(rows):
        before, done = done, done + count
        if before * parts // total != done * parts // total and done < total:
            found.add(number)
    return frozenset(found)


def topic_id_of(event: Event) -> bytes:
    """Returns the id of the topic that an event is about."""
    return _topic_id(str(event.get("topic_id", "")))


def _topic_id(text: str) -> bytes:
    try:
        return bytes(uuid_from_text(text))
    except ValueError:
        return NO_TOPIC_ID


def _identity(event: Event) -> TopicName:
    return TopicName(str(event["topic"]), topic_id_of(event))


def _is_same_topic(one: TopicName, other: TopicName) -> bool:
    return NO_TOPIC_ID in (one.topic_id, other.topic_id) or one.topic_id == other.topic_id


def _compared(state: Mapping[str, Any]) -> tuple[int, set[int], tuple[int, ...]]:
    return state["leader"], set(state["isr"]), tuple(state["replicas"])
