"""Mistakes of clusters in ZooKeeper mode, patched in from outside, that the explorer must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from barnabas.broker.zookeeper.controller_feed import EPOCH_DURING_DELETE, ControllerFeed
from barnabas.broker.zookeeper.registration import Registrar
from barnabas.controller.zookeeper import decision_writes, fenced_writer
from barnabas.controller.zookeeper.active_controller import ActiveController
from barnabas.controller.zookeeper.claim import Claim
from barnabas.controller.zookeeper.deletions import TopicDeletions
from barnabas.controller.zookeeper.fenced_writer import Conflict, FencedWriter, Unit
from barnabas.controller.zookeeper.znode_writes import ZnodeWrite, check, set_data
from barnabas.metadata.image import MetadataDelta
from barnabas.metadata.topics import PartitionImage
from barnabas.simulation.faults import FaultKind
from barnabas.zookeeper.client.store import MultiReply
from barnabas.zookeeper.client.watches import Watches
from barnabas.zookeeper.files.file_store import FileStore
from barnabas.zookeeper.server import zookeeper_server
from barnabas.zookeeper.server.sessions import SessionTracker
from barnabas.zookeeper.wire.codes import ANY_VERSION
from barnabas.zookeeper.wire.operations import Part

Mutation = Callable[[pytest.MonkeyPatch], None]


# -- the controller's writes


def epoch_check_left_out(patch: pytest.MonkeyPatch) -> None:
    """Writes without a check of the controller epoch (KAFKA-6082, G31)."""

    def unchecked(path: str, version: int) -> Part:
        return check(path, ANY_VERSION)

    patch.setattr(fenced_writer, "check", unchecked)


def refused_claim_taken_for_won(patch: pytest.MonkeyPatch) -> None:
    """Begins to decide although another broker's claim came first (G32)."""
    on_claimed = Claim._on_claimed

    def mutated(self: Claim, reply: MultiReply) -> None:
        if reply.is_lost:
            on_claimed(self, reply)
        elif not self._is_closed:
            self._end(self._wanted)

    patch.setattr(Claim, "_on_claimed", mutated)


def lost_answer_taken_for_failure(patch: pytest.MonkeyPatch) -> None:
    """Gives up a write whose answer was lost, as Kafka does with states that it finds created (G33)."""

    def mutated(self: FencedWriter, attempt: Any) -> None:
        self._is_connected = False
        self._settle(attempt, [Conflict(unit, {}) for unit in attempt.units])

    patch.setattr(FencedWriter, "_lost", mutated)
    patch.setattr(ActiveController, "_on_conflict", lambda self, keys: None)


def isr_changed_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """Writes states without a check of their version: a repeated write undoes a later one (G33)."""

    def unconditional(path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeWrite:
        return set_data(path, data)

    patch.setattr(decision_writes, "set_data", unconditional)


def leader_epoch_not_raised(patch: pytest.MonkeyPatch) -> None:
    """Elects another leader in the same leader epoch."""
    merge = PartitionImage.merge

    def mutated(self: PartitionImage, record: Any) -> PartitionImage:
        return merge(self, record)._replace(leader_epoch=self.leader_epoch)

    patch.setattr(PartitionImage, "merge", mutated)


def assignment_before_the_states(patch: pytest.MonkeyPatch) -> None:
    """Takes replicas out of the assignment, and out of the ISR afterwards (the end of a move, in the wrong order)."""
    topic_units = decision_writes._topic_units

    def mutated(context: Any, topic_id: bytes, changed: Mapping[int, Any]) -> Iterator[Unit]:
        for unit in topic_units(context, topic_id, changed):
            first, *rest = unit.writes
            if first.path.count("/") == 3 and rest:  # /brokers/topics/T
                yield Unit(unit.key, (first,))
                yield Unit(unit.key, tuple(rest), is_last=True)
            else:
                yield unit

    patch.setattr(decision_writes, "_topic_units", mutated)


def deletion_without_dead_replicas(patch: pytest.MonkeyPatch) -> None:
    """Deletes the znodes of a topic although a dead broker has a replica of it (G43)."""
    asking = TopicDeletions._asking

    def mutated(self: TopicDeletions, name: str, deletion: Any, broker_id: int | None) -> Any:
        deletion.replicas -= {place for place in deletion.replicas if place[1] not in self._core.image.brokers}
        return asking(self, name, deletion, broker_id)

    patch.setattr(TopicDeletions, "_asking", mutated)


# -- sessions and watches


def no_registration_after_an_expiry(patch: pytest.MonkeyPatch) -> None:
    """Registers in the first session only (KAFKA-1387, G34)."""
    register = Registrar.register

    def mutated(self: Registrar) -> Any:
        if self._own_sessions:
            return 1
        return (yield from register(self))

    patch.setattr(Registrar, "register", mutated)


def watches_not_set_again(patch: pytest.MonkeyPatch) -> None:
    """Reconnects without setWatches (G42)."""
    patch.setattr(Watches, "frames", lambda self, last_zxid: iter(()))


# -- what brokers obey


def old_controllers_obeyed(patch: pytest.MonkeyPatch) -> None:
    """Takes requests of any controller epoch (KAFKA-1096, G36)."""
    refusal = ControllerFeed._refusal

    def mutated(self: ControllerFeed, broker_epoch: int, controller_epoch: int) -> Any:
        self.controller_epoch = 0
        return refusal(self, broker_epoch, controller_epoch)

    patch.setattr(ControllerFeed, "_refusal", mutated)


def broker_epochs_ignored(patch: pytest.MonkeyPatch) -> None:
    """Takes requests for an earlier registration (before KIP-380, G37)."""
    refusal = ControllerFeed._refusal

    def mutated(self: ControllerFeed, broker_epoch: int, controller_epoch: int) -> Any:
        return refusal(self, -1, controller_epoch)

    patch.setattr(ControllerFeed, "_refusal", mutated)


def old_stop_replica_obeyed(patch: pytest.MonkeyPatch) -> None:
    """Stops a replica that has a later role (before KIP-570, G38)."""
    stop = ControllerFeed._stop

    def mutated(self: ControllerFeed, name: str, index: int, leader_epoch: int, delete: bool) -> Any:
        return stop(self, name, index, EPOCH_DURING_DELETE, delete)

    patch.setattr(ControllerFeed, "_stop", mutated)


def roles_by_update_metadata(patch: pytest.MonkeyPatch) -> None:
    """A broker takes its roles from UpdateMetadata, before LeaderAndIsr gives them (G40)."""
    publish = ControllerFeed._publish

    class Everything(frozenset[tuple[str, int]]):
        def __contains__(self, _: object) -> bool:
            return True

    def mutated(self: ControllerFeed, delta: MetadataDelta) -> None:
        if not delta.roles:
            delta.roles = Everything()
        publish(self, delta)

    patch.setattr(ControllerFeed, "_publish", mutated)


# -- the server


def ephemerals_kept_across_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Forgets at a restart which sessions to expire: their ephemeral znodes stay (G45)."""

    def forgetful(clock: Any, timers: Any, tick_ms: int, sessions: Any, id_max: int, expire: Any) -> SessionTracker:
        return SessionTracker(clock, timers, tick_ms, {}, id_max, expire)

    patch.setattr(zookeeper_server, "SessionTracker", forgetful)


def answers_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Applies and answers transactions before they are synced (`forceSync=no`)."""

    def sync(self: FileStore, done: Callable[[], None]) -> None:
        self._writer.write_out()
        done()

    patch.setattr(FileStore, "sync", sync)


class Find(NamedTuple):
    """The first seed that finds the mistake, with kinds of faults that replace the seed's own, and the beginning of the
    finding.
    """

    seed: int
    says: str
    kinds: tuple[FaultKind, ...] = ()


_WRONG_TREE = "the tree of the server is wrong"
_NO_PROGRESS = "nothing is acknowledged although everything healed"
_NOT_IN_SYNC = "the replicas are not in sync again although everything healed"
_LINKS = (FaultKind.SLOW_LINK, FaultKind.ONE_WAY)

FOUND_BY: dict[Mutation, Find] = {
    epoch_check_left_out: Find(63, "two controllers write", _LINKS),
    refused_claim_taken_for_won: Find(2, _NOT_IN_SYNC, (FaultKind.EXPIRE, FaultKind.KILL)),
    lost_answer_taken_for_failure: Find(2, "a leader that no state names", (FaultKind.LOSE_ANSWER,)),
    isr_changed_without_compare_and_set: Find(43, _NOT_IN_SYNC),
    leader_epoch_not_raised: Find(1, "a leader epoch does not rise"),
    assignment_before_the_states: Find(1, "decided wrongly"),
    deletion_without_dead_replicas: Find(6, "a topic was deleted whose log still exists", (FaultKind.STOP,)),
    no_registration_after_an_expiry: Find(1, _NO_PROGRESS, (FaultKind.EXPIRE,)),
    watches_not_set_again: Find(4, _NOT_IN_SYNC),
    old_controllers_obeyed: Find(1, "an old controller is obeyed"),
    broker_epochs_ignored: Find(
        1, "a request for an earlier incarnation is obeyed", (FaultKind.EXPIRE, FaultKind.SLOW_LINK)
    ),
    old_stop_replica_obeyed: Find(20, "an old StopReplica is obeyed", (FaultKind.PAUSE,)),
    roles_by_update_metadata: Find(1, "a role that no LeaderAndIsr gave"),
    ephemerals_kept_across_a_restart: Find(2, _NO_PROGRESS),
    answers_before_the_sync: Find(3, _WRONG_TREE),
}
