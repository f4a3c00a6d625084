"""The controller of one epoch, from the claim to the resignation: it reads the metadata, then decides.

    start --all is read--> loaded --> serve: brokers first, then the first decisions, then all roles as they are
                                      event or request --> decision --written--> requests to the brokers, response

Everything belongs to one claim and ends with it: after `close` nothing is read, written or sent, and no timer, answer
or watch has an effect any more (G41).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.portions import Portions
from barnabas.common.reports import LimitedReports
from barnabas.controller.periodic import Periodic
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.zookeeper.admin_znode_requests import PreferredElectionZnode, ReassignmentZnode
from barnabas.controller.zookeeper.answers import Answers
from barnabas.controller.zookeeper.broker_queues import BrokerQueues, BrokerSender
from barnabas.controller.zookeeper.broker_requests import RequestBatch, Sender, add_change
from barnabas.controller.zookeeper.broker_watch import BrokerWatch
from barnabas.controller.zookeeper.claim import Won
from barnabas.controller.zookeeper.core import SELF, Core, Place, Problems, located, places_of
from barnabas.controller.zookeeper.deletions import TopicDeletions
from barnabas.controller.zookeeper.fenced_writer import FencedWriter
from barnabas.controller.zookeeper.full_state_requests import add_unchanged, introduce
from barnabas.controller.zookeeper.imbalance import imbalanced, rebalance
from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.controller.zookeeper.notifications import Notifications
from barnabas.controller.zookeeper.record_store import RecordStore, StoreEvents
from barnabas.controller.zookeeper.replica_changes import is_unsettled, settle
from barnabas.controller.zookeeper.single_znodes import SingleZnodes
from barnabas.controller.zookeeper.slices import Job, Slices, portions
from barnabas.controller.zookeeper.topic_watch import TopicWatch
from barnabas.controller.zookeeper.znode_reader import ZnodeReader
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaResponse
from barnabas.zookeeper.client.store import ZnodeStore

#: The time from the activation to the first rebalance.
FIRST_REBALANCE_MS: Final = 5_000
#: The number of partitions whose leaders are looked up in one turn, which takes a few milliseconds.
_SCANNED_AT_ONCE: Final = 5_000


class ActivityEvents(NamedTuple):
    """The callbacks of an active controller."""

    #: The callback when everything is read; it is called once.
    on_loaded: Callable[[], None]
    #: Another controller has claimed `/controller`.
    on_fenced: Callable[[], None]
    #: The callback before a decision is written: gets its cause, the image before it, and its records. Returns the
    #: cause with the records that its elections possibly lose.
    on_decision: Callable[[Cause, MetadataImage, Sequence[Versioned]], Cause]
    #: A change has been written to ZooKeeper (`record_store.StoreEvents`).
    on_commit: Callable[[MetadataDelta, MetadataImage, Cause | None], None]


class ActiveController:
    """The parts of the active controller in one controller epoch."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        store: ZnodeStore,
        send: BrokerSender,
        strategy: NamedStrategy | None,
        won: Won,
        events: ActivityEvents,
    ) -> None:
        self._events = events
        self._is_loaded = False
        self._writer = FencedWriter(store, won.epoch_version, events.on_fenced)
        store_events = StoreEvents(self._on_commit, self._on_conflict)
        records = RecordStore(self._writer, won.epoch, host.clock, store_events)
        self.core = Core(
            host,
            config,
            strategy,
            Sender(config.node_id, won.epoch, config.inter_broker_listener, records.epoch_of),
            ZnodeReader(store, self._on_idle),
            records,
            BrokerQueues(host.timers, send, self._on_response),
            Slices(host.timers),
            Problems(LimitedReports(host.faults, host.clock)),
            events.on_decision,
        )
        self.answers = Answers(host.timers)
        self.deletions = TopicDeletions(
            self.core, lambda: self.topics.names, lambda name: self.topics.deletion_ended(name)
        )
        self.topics = TopicWatch(self.core, self.deletions.has_begun)
        self.brokers = BrokerWatch(self.core, self.topics.decide_first_states)
        self.cluster = SingleZnodes(self.core)
        self._elections = PreferredElectionZnode(self.core)
        self._reassignments = ReassignmentZnode(self.core)
        self._notifications = Notifications(self.core, self.topics.read_again)
        period_ms = config.int_of("leader.imbalance.check.interval.seconds") * 1_000
        self._rebalance = Periodic(host.timers, period_ms, self.rebalance, first_ms=FIRST_REBALANCE_MS)

    # Life.

    def start(self) -> None:
        """Sets all watches and reads everything."""
        self.deletions.start()
        self.brokers.start()
        self.topics.start()
        self.cluster.start()
        self._elections.start()
        self._reassignments.start()
        self._notifications.start()

    def _on_idle(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._events.on_loaded()

    def serve(self) -> Job:
        """Begins to decide. Brokers know the live brokers before any of them gets a role (G40)."""
        core = self.core
        core.is_serving = True
        for broker_id, broker in sorted(core.image.brokers.items()):
            core.queues.open(broker_id, broker.epoch)
        batch = core.batch()
        batch.brokers_changed(first=True)
        core.send(batch)
        self.brokers.serve()
        self.deletions.resume()
        yield from self._first_decisions()
        self._elections.resume()
        self._reassignments.resume()
        if core.config.bool_of("auto.leader.rebalance.enable"):
            self._rebalance.start()

    def _first_decisions(self) -> Job:
        """Makes the decisions for partitions that need one, such as a new leader, and sends the other partitions to the
        brokers immediately; the decided ones follow when they are written. Partitions whose leader is gone come first,
        because clients wait for them.
        """
        core = self.core
        cause = Cause(ControllerEvent.ACTIVATION, SELF, f"epoch {core.sender.controller_epoch}")
        places = yield from _without_leader_first(core.image)
        for number, portion in enumerate(portions(places)):
            if number:
                yield
            view = core.view()
            unsettled = [each for each in located(core.image, portion) if is_unsettled(view, each[2])]
            core.propose_in_job(Result(settle(view, unsettled), None, cause))
            self.topics.decide_first_states(unsettled)
            batch = core.batch()
            add_unchanged(core, batch, portion)
            core.send(batch)

    def suspend(self) -> None:
        """Pauses until the next connection of the session."""
        self._writer.suspend()

    def resume(self) -> None:
        """Continues on the next connection: repeats the reads and writes whose answers were lost."""
        self._writer.resume()
        self.core.reader.resume()

    def changed(self, path: str) -> None:
        self.core.reader.changed(path)

    def close(self) -> None:
        self.core.is_serving = False
        self._rebalance.stop()
        self.core.slices.close()
        self._writer.close()
        self.brokers.close()
        self.deletions.close()
        self.core.records.close()
        self.core.reader.close()
        self.core.queues.close()
        self.answers.close()

    def has_unread_znode(self, name: str) -> bool:
        """Returns whether the name is taken by a topic that is not in the image: it is being deleted, or its znodes are
        invalid.
        """
        if name in self.core.image.topics_by_name:
            return False
        return name in self.topics.names or self.deletions.is_deleting(name)

    def when_own_broker_knows(self, done: Callable[[], None]) -> None:
        """Calls back when this controller's own broker has answered all requests that were sent to it."""
        self.core.queues.after_all(self.core.own_id, done)

    # Events.

    def _on_commit(self, delta: MetadataDelta, image: MetadataImage, cause: Cause | None) -> None:
        core = self.core
        if not core.is_serving:
            return
        self._events.on_commit(delta, image, cause)
        joined: dict[int, int] = {}
        for broker_id, broker in sorted(delta.changed_brokers.items()):
            if broker is None:
                core.queues.end(broker_id)
            else:
                before = delta.image.brokers.get(broker_id)
                if before is None or before.epoch != broker.epoch:
                    joined[broker_id] = broker.epoch
                core.queues.open(broker_id, broker.epoch)
        batch = RequestBatch(core.sender, image)
        add_change(batch, delta, image, self.deletions.has_begun)
        core.send(batch)
        if joined:
            core.slices.begin(introduce(core, joined))
        for broker_id in joined:
            self.deletions.broker_joined(broker_id)
        self._reassignments.note_done(delta)
        if delta.changed_topics:
            self._decide_first_states(delta)
            self.deletions.resume()

    def _decide_first_states(self, delta: MetadataDelta) -> None:
        places = [
            (topic_id, index)
            for topic_id, change in delta.changed_topics.items()
            for index, partition in change.changed_partitions.items()
            if not has_state(partition)
        ]
        if places:
            self.topics.decide_first_states(located(self.core.image, places))

    def _on_conflict(self, keys: frozenset[str]) -> None:
        for key in sorted(keys):
            if key.startswith("/"):
                self.cluster.read_again(key)
            else:
                self.topics.read_again(key)

    def _on_response(self, broker_id: int, request: Message, response: Message) -> None:
        if isinstance(response, StopReplicaResponse):
            self.deletions.on_response(broker_id, request, response)
        elif isinstance(response, LeaderAndIsrResponse):
            failed = [
                (topic.topic_id, row.partition_index)
                for topic in response.topics
                for row in topic.partition_errors
                if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            ]
            if failed:
                self.brokers.directories_failed(broker_id, failed)

    def rebalance(self) -> None:
        """Moves leadership back to preferred leaders, for brokers that lead too few of the partitions that prefer
        them.
        """
        core = self.core
        percentage = core.config.int_of("leader.imbalance.per.broker.percentage")
        core.decide_in_slices(imbalanced(core.view(), percentage), rebalance)


def _without_leader_first(image: MetadataImage) -> Portions[list[Place]]:
    """Returns all partitions, those without a live leader before the others."""
    waiting: list[Place] = []
    led: list[Place] = []
    for number, (topic_id, index) in enumerate(places_of(image), 1):
        leader = image.topics_by_id[topic_id].partitions[index].leader
        (led if leader in image.brokers else waiting).append((topic_id, index))
        if not number % _SCANNED_AT_ONCE:
            yield
    return waiting + led
