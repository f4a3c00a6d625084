"""Mistakes of coordinators and logs, patched in from outside, that whole runs of the simulator must find."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import NamedTuple

import pytest
from tests.support.txn_mutations import answers_before_it_is_durable

from barnabas.coordinators.groups.classic.group import ClassicGroup
from barnabas.coordinators.groups.committers import Committers
from barnabas.coordinators.groups.consumer import reconcile
from barnabas.coordinators.groups.consumer.member import Assignment, Member
from barnabas.coordinators.transactions import transitions
from barnabas.coordinators.transactions.state import TxnImage
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.scenario import Settings
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.storage.producers import ProducerStateManager

Mutation = Callable[[pytest.MonkeyPatch], None]

THREE = Layout(brokers=3)


def stale_generations_commit(patch: pytest.MonkeyPatch) -> None:
    """Accepts offsets from any client that names the group."""
    patch.setattr(Committers, "validate", lambda *_: None)


def commits_are_answered_at_once(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges a commit when the leader has it and its followers do not."""
    # The comparison of coordinators with their logs is switched off, because it would find the mistake first.
    patch.setattr(Coordinators, "check", lambda self, cluster: None)
    answers_before_it_is_durable(patch)


def partitions_are_given_before_they_are_free(patch: pytest.MonkeyPatch) -> None:
    """Gives a member the partitions of its target while another member still owns them."""
    advance = reconcile._advance

    def mutated(member: Member, goal: reconcile.Goal, owned: Assignment | None) -> Generator[int, None, Member]:
        return advance(member, replace(goal, owner_of=lambda *_: None), owned)

    patch.setattr(reconcile, "_advance", mutated)


def generations_are_not_bumped(patch: pytest.MonkeyPatch) -> None:
    """Does not raise the generation when members join again."""
    begin_generation = ClassicGroup.begin_generation

    def mutated(self: ClassicGroup, wall_ms: int) -> None:
        before = self.generation
        begin_generation(self, wall_ms)
        self.generation = max(before, 1)

    patch.setattr(ClassicGroup, "begin_generation", mutated)


def epochs_are_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Gives a new producer of a transactional id the epoch of the previous one."""
    bumped = transitions._bumped

    def mutated(image: TxnImage, expected: transitions.ProducerIdentity | None) -> tuple[int, int]:
        epoch, last = bumped(image, expected)
        return (image.producer_epoch, last) if image.producer_epoch >= 0 else (epoch, last)

    patch.setattr(transitions, "_bumped", mutated)


def lso_moves_before_the_marker_is_replicated(patch: pytest.MonkeyPatch) -> None:
    """Ends a transaction for readers when only the leader has its marker."""
    patch.setattr(ProducerStateManager, "first_unstable_offset", property(lambda state: state.first_undecided_offset))


class Case(NamedTuple):
    """A run that finds the mistake, and the text of its finding."""

    settings: Settings
    says: str


def _groups(seed: int, *faults: Fault, **options: object) -> Settings:
    return Settings(
        seed=seed,
        layout=THREE,
        work=WorkKind.GROUPS,
        faults_s=25,
        records_per_s=4.0,
        operations=(),
        schedule=faults,
        **options,  # type: ignore[arg-type]
    )


def _transactions(seed: int) -> Settings:
    return Settings(seed=seed, layout=THREE, work=WorkKind.TRANSACTIONS, faults_s=10, operations=(), schedule=())


#: Faults that cut every broker off from the other two once, while clients still reach it.
_CUTS = tuple(
    Fault(at_ms, FaultKind.PARTITION, f"broker{one}", f"broker{two}", 12_000)
    for one, at_ms in ((1, 6_000), (2, 20_000), (3, 34_000))
    for two in (1, 2, 3)
    if one != two
)
_PAUSES = tuple(
    Fault(at_ms, FaultKind.PAUSE_CLIENT, name, duration_ms=13_000)
    for name, at_ms in (("modern1", 5_000), ("member1", 6_000), ("modern2", 20_000), ("member2", 21_000))
)

FOUND_BY: dict[Mutation, Case] = {
    stale_generations_commit: Case(_groups(1, *_PAUSES), "committed offset went back"),
    commits_are_answered_at_once: Case(_groups(6, *_CUTS), "committed offset went back"),
    partitions_are_given_before_they_are_free: Case(_groups(1), "has an owner already"),
    generations_are_not_bumped: Case(_groups(3), "two owners in a generation"),
    epochs_are_given_twice: Case(_transactions(1), "lost-write"),
    lso_moves_before_the_marker_is_replicated: Case(_transactions(1), "the LSO is not where it should be"),
}
