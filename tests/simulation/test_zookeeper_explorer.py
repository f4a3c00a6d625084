"""Seeds of ZooKeeper mode under faults that must pass, and mistakes that they must find."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.support import zookeeper_mutations
from tests.support.mistakes import cases
from tests.support.zookeeper_mutations import FOUND_BY, Mutation

from barnabas.simulation.faults import FaultKind
from barnabas.simulation.worlds.zookeeper_explorer import explore

#: Mistakes that are found after several seconds.
_LATE = [
    zookeeper_mutations.epoch_check_left_out,
    zookeeper_mutations.isr_changed_without_compare_and_set,
    zookeeper_mutations.old_stop_replica_obeyed,
    zookeeper_mutations.no_registration_after_an_expiry,
    zookeeper_mutations.ephemerals_kept_across_a_restart,
]
_DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"
_BLOCK = 20
_MORE_SEEDS = 20
#: The runs are short: two seconds of faults, and the recovery.
_SHORT_S = 2


@pytest.mark.parametrize("block", [0, *(pytest.param(more, marks=pytest.mark.full) for more in range(1, 10))])
def test_every_promise_holds(block: int) -> None:
    for seed in range(1 + block * _BLOCK, 1 + (block + 1) * _BLOCK):
        outcome = explore(seed, duration_s=_SHORT_S)
        assert outcome.problem is None, outcome


@pytest.mark.parametrize(
    "seed",
    [
        20078,  # an UpdateMetadata arrives twice, the second time after a broker joined, which it does not list
        20235,  # the same
        21546,  # a broker is known to all before it lets clients in
        23601,  # the server, restarted with a clock that was set back, gives two brokers one session
        30506,  # other records, which a follower had below the leader's log start, were visible after a kill
        31761,  # a topic whose name had a marker before it existed is deleted although the marker is gone
        32140,  # a deposed leader without the newest records refuses a reader that sends no epoch, as in Kafka
    ],
)
def test_what_looked_wrong_once(seed: int) -> None:
    outcome = explore(seed)
    assert outcome.problem is None, outcome


def test_a_topic_made_while_its_name_is_being_deleted_is_read() -> None:
    outcome = explore(130, kinds=(FaultKind.SLOW_LINK, FaultKind.ONE_WAY))
    assert outcome.problem is None, outcome


@pytest.mark.full
@pytest.mark.parametrize("block", range(50))
def test_every_promise_holds_in_many_seeds(block: int) -> None:
    for seed in range(1000 + block * _BLOCK, 1000 + (block + 1) * _BLOCK):
        outcome = explore(seed)
        assert outcome.problem is None, outcome


def test_every_mistake_is_tried() -> None:
    functions = inspect.getmembers(zookeeper_mutations, inspect.isfunction)
    assert {f for _, f in functions if f.__module__ == zookeeper_mutations.__name__} == set(FOUND_BY)


def test_the_table_of_mistakes_is_in_the_docs() -> None:
    for mutation, find in FOUND_BY.items():
        name = mutation.__name__.replace("_", " ")
        kinds = f" (`{','.join(kind.value for kind in find.kinds)}`)" if find.kinds else ""
        assert f"| {name} | {find.seed}{kinds} | {find.says} |" in _DOCS.read_text()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mutation", cases(FOUND_BY, late=_LATE))
def test_a_mistake_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed that found the mistake first passes without it, and fails with it; a later one is tried where the runs
    have shifted.
    """
    seed, _, kinds = FOUND_BY[mutation]
    whole = explore(seed, kinds=kinds)
    assert whole.problem is None, whole
    mutation(monkeypatch)
    problems = (explore(attempt, kinds=kinds).problem for attempt in range(seed, seed + _MORE_SEEDS))
    found = next((problem for problem in problems if problem is not None), None)
    assert found is not None, f"none of {_MORE_SEEDS} seeds finds it"
    assert not found.startswith("the run itself failed"), found
