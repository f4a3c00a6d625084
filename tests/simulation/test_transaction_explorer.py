"""Seeds of transactions under faults that must pass, and mistakes that they must find."""

from __future__ import annotations

import inspect

import pytest
from tests.support import txn_mutations
from tests.support.mistakes import cases
from tests.support.txn_mutations import FOUND_BY, FOUND_IN, Mutation
from tests.support.txn_situations import Situation

from barnabas.simulation.worlds.txn_explorer import explore

#: Mistakes that are found after several seconds.
_LATE = [
    txn_mutations.late_markers_count,
    txn_mutations.markers_of_any_epoch_count,
    txn_mutations.epochs_are_not_bumped,
    txn_mutations.the_next_epoch_is_fenced_until_the_last_is_complete,
]
_BLOCK = 25
_MORE_SEEDS = 20


@pytest.mark.parametrize("seed", range(1, 4))
def test_all_of_a_transaction_or_nothing(seed: int) -> None:
    outcome = explore(seed)
    assert outcome.problem is None, outcome
    assert outcome.committed > 20


@pytest.mark.full
@pytest.mark.parametrize("block", range(40))
def test_all_of_a_transaction_or_nothing_in_many_seeds(block: int) -> None:
    for seed in range(1000 + block * _BLOCK, 1000 + (block + 1) * _BLOCK):
        outcome = explore(seed)
        assert outcome.problem is None, outcome


def test_every_mistake_is_tried() -> None:
    functions = inspect.getmembers(txn_mutations, inspect.isfunction)
    own = {f for _, f in functions if f.__module__ == txn_mutations.__name__}
    assert own == set(FOUND_BY) | set(FOUND_IN)


@pytest.mark.parametrize("mutation", cases(FOUND_BY, late=_LATE))
def test_a_mistake_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed that found the mistake first finds it, or a later one where the runs have shifted. All pass without
    it.
    """
    seed = FOUND_BY[mutation]
    mutation(monkeypatch)
    problems = (explore(attempt).problem for attempt in range(seed, seed + _MORE_SEEDS))
    assert any(problem is not None for problem in problems), f"none of {_MORE_SEEDS} seeds finds it"


SITUATIONS = [(mutation, situation, says) for mutation, found in FOUND_IN.items() for situation, says in found]
NAMES = [f"{mutation.__name__}-{number}" for number, (mutation, _, _) in enumerate(SITUATIONS)]


@pytest.mark.parametrize(("mutation", "situation", "says"), SITUATIONS, ids=NAMES)
def test_a_situation_is_mastered_but_for_the_mistake(
    mutation: Mutation, situation: Situation, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation()
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=says):
        situation()
