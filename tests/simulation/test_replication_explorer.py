"""Seeds of replication under faults that must pass, and mistakes that they must find."""

from __future__ import annotations

import inspect

import pytest
from tests.support import replication_mutations
from tests.support.mistakes import cases
from tests.support.replication_mutations import FOUND_BY, Mutation

from barnabas.simulation.faults import FaultKind
from barnabas.simulation.worlds.replication_explorer import explore

#: Mistakes that are found after several seconds.
_LATE = [
    replication_mutations.the_elr_forgets_who_crashed,
    replication_mutations.an_unclean_end_counts_as_clean,
    replication_mutations.incarnations_are_ignored,
]
_BLOCK = 50
_MORE_SEEDS = 40


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = explore(seed)
    assert outcome.problem is None, outcome
    assert outcome.acked > 20


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        (7, ()),  # the last known leader leads again
        (24, ()),  # a member of the ELR crashed: the last known leader leads again
        (29, (FaultKind.POWER,)),  # a request of the mover arrives when all is whole
        (137, (FaultKind.POWER,)),  # a follower truncates an epoch without records, and does not get the HW again
        (20038, ()),  # the same
        (20029, ()),  # a topic with a min ISR of 1 loses its end
        (20080, ()),  # a deposed leader learns late of its leadership
        (47, ()),  # connecting to the controller takes most of the time that a heartbeat has
        (23871, ()),  # a dead incarnation's request, long under way, registers it after the living one
    ],
)
def test_what_looked_wrong_once(seed: int, kinds: tuple[FaultKind, ...]) -> None:
    """The faults of these runs strike at fixed times."""
    outcome = explore(seed, kinds=kinds, ties_faults=False)
    assert outcome.problem is None, outcome


@pytest.mark.parametrize(
    "seed",
    [
        1061,  # everything healed while the controller was about to stop
        1161,  # a broker sends a change of a setting a second time, and the first one arrives after the next change
        2910,  # a follower begins its log at the leader's start offset just before a power failure
    ],
)
def test_what_looked_wrong_with_faults_at_events(seed: int) -> None:
    outcome = explore(seed)
    assert outcome.problem is None, outcome


@pytest.mark.full
@pytest.mark.parametrize("block", range(40))
def test_nothing_acknowledged_is_lost_in_many_seeds(block: int) -> None:
    for seed in range(1000 + block * _BLOCK, 1000 + (block + 1) * _BLOCK):
        outcome = explore(seed)
        assert outcome.problem is None, outcome


def test_every_mistake_is_tried() -> None:
    functions = inspect.getmembers(replication_mutations, inspect.isfunction)
    assert {f for _, f in functions if f.__module__ == replication_mutations.__name__} == set(FOUND_BY)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mutation", cases(FOUND_BY, late=_LATE))
def test_a_mistake_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed that found the mistake first passes without it, and fails with it; a later one is tried where the runs
    have shifted. Faults strike at fixed times.
    """
    seed, _, kinds = FOUND_BY[mutation]
    whole = explore(seed, kinds=kinds, ties_faults=False)
    assert whole.problem is None, whole
    mutation(monkeypatch)
    problems = (explore(attempt, kinds=kinds, ties_faults=False).problem for attempt in range(seed, seed + _MORE_SEEDS))
    found = next((problem for problem in problems if problem is not None), None)
    assert found is not None, f"none of {_MORE_SEEDS} seeds finds it"
    assert not found.startswith("the run itself failed"), found
    assert "TypeError" not in found, f"the mistake does not fit the code any more: {found}"
