"""Random histories of the controllers of ZooKeeper mode, and mistakes on purpose that these histories must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.zookeeper_schedule import Schedule, run_seed

from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.active_controller import ActiveController
from barnabas.controller.zookeeper.broker_watch import BrokerWatch
from barnabas.controller.zookeeper.claim import Claim
from barnabas.controller.zookeeper.deletions import TopicDeletions
from barnabas.controller.zookeeper.fenced_writer import FencedWriter
from barnabas.controller.zookeeper.znode_reader import ZnodeReader
from barnabas.controller.zookeeper.znode_writes import set_data
from barnabas.zookeeper.wire.codes import ANY_VERSION

#: The seeds among which each mistake must be found.
SEEDS = 60


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 999)), max_size=40))
def test_clusters_come_to_rest_whatever_happened(actions: list[tuple[int, int]]) -> None:
    """Afterwards there is one controller, every partition is led from its ISR, all brokers know this, and no marker is
    left."""
    schedule = Schedule()
    for kind, number in actions:
        schedule.act(kind, number)
    schedule.heal()
    schedule.check()


#: Histories that once failed: a role that follows the StopReplica of its deletion.
FAILED_ONCE = (173,)


@pytest.mark.parametrize("seed", [*range(20), *FAILED_ONCE])
def test_seeds_hold(seed: int) -> None:
    run_seed(seed)


# Mistakes on purpose.

Patch = Callable[[pytest.MonkeyPatch], None]


def refused_claim_taken_for_won(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claim, "_on_claimed", lambda self, reply: None if reply.is_lost else self._end(self._wanted))


def lost_answer_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FencedWriter, "_lost", lambda self, attempt: self._settle(attempt, ()))


def states_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "barnabas.controller.zookeeper.decision_writes.set_data",
        lambda path, data, version=ANY_VERSION: set_data(path, data),
    )


def watches_not_set_again(patch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[int, str]] = set()
    send = ZnodeReader._send

    def once(self: ZnodeReader) -> None:
        for look in self._queue:
            look.keeps_watch = look.keeps_watch and (id(self), look.path) not in seen
            seen.add((id(self), look.path))
        send(self)

    patch.setattr(ZnodeReader, "_send", once)


def lost_reads_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZnodeReader, "resume", lambda self: None)


def bounced_broker_taken_for_the_same(patch: pytest.MonkeyPatch) -> None:
    look = BrokerWatch._on_broker

    def by_id(self: BrokerWatch, broker_id: int, reply: Any) -> None:
        if reply.znode is None or broker_id not in self._core.image.brokers:
            look(self, broker_id, reply)

    patch.setattr(BrokerWatch, "_on_broker", by_id)


def deletion_without_a_dead_replica(patch: pytest.MonkeyPatch) -> None:
    asking = TopicDeletions._asking

    def impatient(self: TopicDeletions, name: str, deletion: Any, broker_id: int | None) -> Any:
        alive = self._core.image.brokers
        deletion.replicas = {each for each in deletion.replicas if each[1] in alive}
        return asking(self, name, deletion, broker_id)

    patch.setattr(TopicDeletions, "_asking", impatient)


def leader_epoch_not_raised(patch: pytest.MonkeyPatch) -> None:
    rules = ControllerView.rules

    def lower(self: ControllerView, *arguments: Any, **options: Any) -> Any:
        return replace(rules(self, *arguments, **options), raises_leader_epoch=False, raises_when_reassigned=False)

    patch.setattr(ControllerView, "rules", lower)


def requests_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("barnabas.controller.zookeeper.broker_queues.RETRY_MS", 10**9)


def conflicts_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ActiveController, "_on_conflict", lambda self, keys: None)


MISTAKES: tuple[Patch, ...] = (
    refused_claim_taken_for_won,
    lost_answer_taken_for_done,
    states_without_compare_and_set,
    watches_not_set_again,
    lost_reads_not_repeated,
    bounced_broker_taken_for_the_same,
    deletion_without_a_dead_replica,
    leader_epoch_not_raised,
    requests_not_repeated,
    conflicts_ignored,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_on_purpose_is_found(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    for seed in range(SEEDS):
        try:
            run_seed(seed)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"not found in {SEEDS} seeds")
