"""The journal of one node: writes every change of the metadata with its cause to the topic `__cluster_events`.

The active controller writes each committed change, in order, with the cause of its decision. Controllers that are not
active keep the last changes in memory: one that becomes active reads from the end of the topic how far its predecessor
came, and continues there. Events that are written twice have the same ids, derived from the metadata offset, so readers
can drop the second copy. Each broker writes the events that only it knows: the records that it cut off its own logs.

Invariants
- No decision waits for the journal. Changes are queued and written some milliseconds later, a few events at a time,
  with one request in flight; failed writes are retried with growing pauses.
- Memory is bounded; changes that were dropped are reported as a gap. Large changes are packed, so that the loss of a
  broker with 100,000 replicas stays, whatever follows.
- An idle cluster costs nothing: no timer and no request.

In ZooKeeper mode only the active controller knows the changes, and the journal begins with it: changes that it wrote
and did not report, because it ended a moment later, are missing. The offsets of changes have the controller epoch above
their lower 32 bits. If the controller keeps no journal, because it is a broker of Apache Kafka, each broker writes what
it infers.

The topic is created one second after the first change that needs an explanation (`_needs_explaining`): a cluster
without failures, rules and quotas has only its users' topics, as with Kafka, and the creation of the topic does not
delay the failover itself. Its schema is in docs/explain.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Timer
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.controller.requests.result import Cause, ControllerEvent
from barnabas.controller.requests.view import ControllerView
from barnabas.journal import inferred
from barnabas.journal.event_record import record_of
from barnabas.journal.events import Event, MetadataChange, changes_rights, events_of, makes_events
from barnabas.journal.partition_changes import changes_of, partition_before
from barnabas.journal.replica_events import ReplicaEvents
from barnabas.journal.self_reports import SelfReport
from barnabas.journal.topic import EventsTopic
from barnabas.journal.window import ChangeWindow, PackingTurns
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.records_metadata import RegisterControllerRecord
from barnabas.records.batch import Record, encode_batch

_LINGER_MS: Final = 10
_CREATE_MS: Final = 1_000
_PAUSE_MS: Final = 50
_PAUSE_MS_MAX: Final = 2_000
#: The largest number of events encoded in one step, which takes some milliseconds.
_EVENTS_PER_BATCH: Final = 250
#: The size of a batch after which no further event is added: one event of a large decision has up to 200 partitions.
_BYTES_PER_BATCH: Final = 128 << 10
#: Smaller batches are not worth compressing.
_EVENTS_TO_COMPRESS: Final = 8
_GZIP: Final = 1
#: The largest number of events of waiting changes in one response: the first ones name the fault.
_CHANGES_TO_READERS: Final = 20


class ControllerState(Protocol):
    """The part of this node's controller that the journal uses."""

    @property
    def is_active(self) -> bool: ...


class Quorum(Protocol):
    """The part of this node's quorum that the journal uses."""

    @property
    def epoch(self) -> int: ...
    @property
    def voter_ids(self) -> tuple[int, ...]: ...


class JournalContext(NamedTuple):
    """The parts of the node that the journal reads."""

    metadata: MetadataStore
    quorum: Quorum
    controller: ControllerState


class Journal:
    """The journal; one per node. `create` requests the creation of the topic and can be called repeatedly."""

    def __init__(
        self, host: Host, config: BrokerConfig, context: JournalContext, topic: EventsTopic, create: Callable[[], None]
    ) -> None:
        self._host = host
        self._config = config
        self._context = context
        self._topic = topic
        self._create = create
        self._node_id = config.node_id
        self._is_enabled = config.bool_of("barnabas.cluster.events.enable")
        #: Whether each image has all decisions, and offsets that are the same on all nodes.
        self._follows_images = config.is_controller and not config.is_zookeeper_mode
        self._is_following = False
        #: The offset of the last change that this node has seen, published alone or together with others.
        self._seen_offset = -1
        self._causes: deque[tuple[int, Cause]] = deque()
        self._cause: Cause | None = None
        #: Topics whose first states are not decided, in ZooKeeper mode.
        self._created: dict[bytes, Cause] = {}
        self._registered_epoch = -1
        self._voter_ids: tuple[int, ...] = ()
        self.window = ChangeWindow(partial(_records_of, host, config), self._needs_explaining)
        self._packing = PackingTurns(host.timers, self.window)
        self.replica_events = ReplicaEvents(config.node_id, host.clock)
        #: Inferred events that are only written if later ones concern users.
        self._inferred: list[Event] = []
        self._unexplained = inferred.UnexplainedChanges(
            host.timers, self._inferred_events, self._on_inferred, self._inferred.clear
        )
        #: The quorum's epoch in which this node, as the active controller, has read how far the journal is.
        self._resumed_epoch = -1
        self._timer: Timer | None = None
        self._is_busy = False
        self._is_closed = False
        self._pause_ms = _PAUSE_MS

    # -- events

    def on_decision(self, first_offset: int, cause: Cause) -> None:
        """Remembers the cause of a decision, whose first record is at this offset (`ControllerListener`)."""
        if not self._is_enabled:
            return
        while self._causes and self._causes[-1][0] >= first_offset:
            self._causes.pop()  # the quorum refused that decision
        self._causes.append((first_offset, cause))

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Queues a change of the metadata that the store published."""
        if not self._is_enabled:
            return
        if self._follows_images:
            self._follow(delta, image)
        self._topic.follow_leader()
        if self._topic.exists and (self.replica_events or (self._context.controller.is_active and self.window)):
            self._later(_LINGER_MS)

    def on_catch_up_change(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Queues a change that is published only with others (`MetadataStore.on_catch_up_change`).

        This happens while this node is behind, as at each startup, and this node can be the one that has to write these
        changes.
        """
        if self._is_enabled and self._follows_images:
            if delta.image.offset != self._seen_offset:
                self.window.begin_after(delta.image.offset)  # a snapshot replaced the earlier changes
            self._seen_offset = image.offset
            self._keep(delta, image, None)

    def begin_epoch(self, image: MetadataImage) -> None:
        """Begins the journal of this node's controller, which has become active in ZooKeeper mode."""
        if not self._is_enabled:
            return
        self.window.begin_after(-1)
        self._created.clear()
        delta = MetadataDelta(image)
        delta.replay(RegisterControllerRecord(controller_id=self._node_id))
        cause = Cause(ControllerEvent.ACTIVATION, "controller", f"epoch {image.epoch}")
        self.window.add(MetadataChange(delta, image, cause, is_first_of_epoch=True))

    def on_commit(self, delta: MetadataDelta, image: MetadataImage, cause: Cause | None) -> None:
        """Queues a change that the controller of this node made in ZooKeeper mode."""
        if self._is_enabled and makes_events(delta):
            self._add(MetadataChange(delta, image, self._creation_of(delta, cause)))
            if self._topic.exists:
                self._later(_LINGER_MS)

    def _creation_of(self, delta: MetadataDelta, cause: Cause | None) -> Cause | None:
        """Returns the cause of the creation for the first states of a topic, which are decided separately."""
        if cause is None or cause.event not in (ControllerEvent.CREATE_TOPICS, ControllerEvent.CREATE_PARTITIONS):
            return cause
        known = [self._created.pop(topic_id) for topic_id in delta.changed_topics if topic_id in self._created]
        if known:
            return known[0]
        self._created.update(dict.fromkeys(delta.changed_topics, cause))
        return cause

    def _follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        voter_ids = self._context.quorum.voter_ids
        if not self._is_following:
            self._is_following = True
            self._voter_ids = voter_ids
        if image.offset <= self._seen_offset:
            return  # on_catch_up_change has queued all of it
        if delta.image.offset != self._seen_offset or self._seen_offset < 0:
            self.window.begin_after(image.offset)
            self._seen_offset = image.offset
            return
        self._seen_offset = image.offset
        voters = None if voter_ids == self._voter_ids else (self._voter_ids, voter_ids)
        self._voter_ids = voter_ids
        self._keep(delta, image, self._cause_of(image.offset), voters)

    def _keep(
        self,
        delta: MetadataDelta,
        image: MetadataImage,
        cause: Cause | None,
        voters: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> None:
        if voters is None and not makes_events(delta):
            return
        is_first = False
        if delta.changed_controllers:
            is_first = (
                cause.event is ControllerEvent.ACTIVATION
                if cause is not None
                else image.epoch != self._registered_epoch
            )
            self._registered_epoch = image.epoch
        self._add(MetadataChange(delta, image, cause, is_first, voters))

    def _add(self, change: MetadataChange) -> None:
        self.window.add(change)
        self._packing.begin()
        if self._context.controller.is_active and not self._topic.exists and self._needs_explaining(change):
            self._later(_CREATE_MS)

    def _cause_of(self, offset: int) -> Cause | None:
        """Returns the cause of the decision that wrote the record at this offset."""
        if not self._context.controller.is_active:
            self._causes.clear()
            self._cause = None
            return None
        while self._causes and self._causes[0][0] <= offset:
            self._cause = self._causes.popleft()[1]
        return self._cause

    def on_replica_event(self, topic: str, partition: int, topic_id: bytes, what: str, facts: dict[str, int]) -> None:
        """Queues an event about a replica of this broker that lost records, or that leads without records that other
        replicas had.
        """
        if self._is_enabled:
            self.replica_events.add(topic, topic_id, partition, what, facts)
            self._later(_LINGER_MS if self._topic.exists else _CREATE_MS)

    def on_self_report(self, report: SelfReport) -> None:
        """Queues what this broker saw of itself. It is written once there is a journal, and creates none."""
        self.replica_events.report(report)
        if self._topic.exists:
            self._later(_LINGER_MS)

    def on_unexplained(self, delta: MetadataDelta, image: MetadataImage, controller_id: int) -> None:
        """Queues a change that a controller without a journal made; its cause is inferred once it has settled."""
        if self._is_enabled and makes_events(delta):
            self._unexplained.add(controller_id, MetadataChange(delta, image, None))

    def _inferred_events(self, controller_id: int, change: MetadataChange) -> Iterator[Event]:
        live = self._context.metadata.image.brokers
        if len(live) < 2:
            return
        view = ControllerView(change.image, self._config, self._host.random)
        yield from inferred.inferred_events(change, view, self._node_id, controller_id, live)

    def _on_inferred(self, events: list[Event]) -> None:
        self._inferred += events
        if self._inferred and (self._topic.exists or self.replica_events.need_topic or inferred.concerns_users(events)):
            self.replica_events.extend(self._inferred)
            self._inferred.clear()
            self._later(_LINGER_MS if self._topic.exists else _CREATE_MS)

    def waiting(self) -> bytes:
        """Returns the events that are not known to be written, as a batch; empty if there are none. Until an active
        controller knows how far the journal is, it does not know which of its changes wait.
        """
        records: list[Record] = []
        if self._context.controller.is_active and self._resumed_epoch == self._context.quorum.epoch:
            records += self.window.waiting(_CHANGES_TO_READERS)
        records += self.replica_events.waiting(_EVENTS_PER_BATCH)
        return bytes(encode_batch(records, codec=_codec(records))) if records else b""

    def close(self) -> None:
        self._is_closed = True
        self._unexplained.close()
        self._packing.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._topic.close()

    # -- whether it is needed

    def _needs_explaining(self, change: MetadataChange) -> bool:
        """Returns whether somebody changed rules, credentials, tokens or quotas, a broker was lost, or a partition of a
        user's topic changed its leader, ISR or replicas.

        In a cluster of one broker only the first counts: there the leaders only come and go with the broker.
        """
        delta = change.delta
        if changes_rights(delta) and change.cause is not None and change.cause.event is not ControllerEvent.ACTIVATION:
            return True
        if len(change.image.brokers) < 2:
            return False
        for broker_id, after in delta.changed_brokers.items():
            before = delta.image.brokers.get(broker_id)
            if before is not None and before.is_active and (after is None or after.fenced):
                return True
        for topic in delta.changed_topics.values():
            if topic.name in INTERNAL_TOPICS:
                continue
            for index, partition in topic.changed_partitions.items():
                was = partition_before(topic, index)
                if was is not None and changes_of(was, partition):
                    return True
        return False

    def _may_create(self) -> bool:
        """Returns whether the topic can be created now. It cannot while at least half of the brokers are shutting
        down.
        """
        brokers = self._context.metadata.image.brokers
        active = sum(broker.is_active for broker in brokers.values())
        if not active or 2 * sum(broker.in_controlled_shutdown for broker in brokers.values()) >= len(brokers):
            return False
        if self.replica_events.need_topic:
            return True
        return self._context.controller.is_active and self.window.needs_explaining

    # -- writing

    def _later(self, delay_ms: int) -> None:
        if self._timer is None and not self._is_busy and not self._is_closed:
            self._timer = self._host.timers.call_later(delay_ms, self._go_on)

    def _again(self) -> None:
        self._later(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)

    def _go_on(self) -> None:
        """Takes the next step: creates the topic, reads how far the journal has come, or writes a batch."""
        self._timer = None
        if self._is_closed:
            return
        is_active = self._context.controller.is_active
        if not self._topic.exists:
            if self._may_create():
                self._resumed_epoch = -1
                self._create()
                self._again()
            return
        if is_active and self._resumed_epoch != self._context.quorum.epoch:
            self._is_busy = True
            epoch = self._context.quorum.epoch
            self._topic.last_key(_names_offset, lambda key, is_known: self._resume(epoch, key, is_known))
            return
        records = self.replica_events.draw(_EVENTS_PER_BATCH)
        if is_active and len(records) < _EVENTS_PER_BATCH:
            records += self.window.draw(_EVENTS_PER_BATCH - len(records), _BYTES_PER_BATCH)
        if records:
            self._is_busy = True
            self._topic.append(encode_batch(records, codec=_codec(records)), self._on_written)
        elif is_active:
            self.window.written()  # no event describes these changes

    def _on_written(self, is_written: bool) -> None:
        self._is_busy = False
        if is_written:
            self.replica_events.written()
            self.window.written()
            self._pause_ms = _PAUSE_MS
            if self.replica_events or (self.window and self._context.controller.is_active):
                self._later(0)
            return
        self.replica_events.rewind()
        self.window.rewind()
        self._again()

    def _resume(self, epoch: int, key: bytes | None, is_known: bool) -> None:
        """Continues after an earlier controller. The events of the last change that it wrote can be incomplete, so this
        change is kept.
        """
        self._is_busy = False
        if not is_known:
            self._again()
            return
        self._resumed_epoch = epoch
        self._pause_ms = _PAUSE_MS
        if key is not None:
            written = int(key.partition(b":")[0])
            self.window.forget_before(written)
            if self.window.floor > written:
                self.replica_events.add_gap(written + 1, self.window.floor)
        else:
            self.window.forget_before(-1)
        self._later(0)


def _records_of(host: Host, config: BrokerConfig, change: MetadataChange) -> Iterator[Record]:
    view = ControllerView(change.image, config, host.random)
    for _, event in events_of(change, view, config.node_id):
        yield record_of(event)


def _codec(records: list[Record]) -> int:
    return _GZIP if len(records) >= _EVENTS_TO_COMPRESS else 0


def _names_offset(key: bytes) -> bool:
    """Returns whether this is the key of a metadata change; the keys of brokers' own events begin with a letter."""
    return key.partition(b":")[0].isdigit()
