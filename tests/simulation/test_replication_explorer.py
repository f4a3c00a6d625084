"""Seeds of replication under faults that must hold, and mistakes that they must find."""

from __future__ import annotations

import pytest
from tests.support.replication_explorer import explore
from tests.support.replication_mutations import FOUND_BY, Mutation

_BLOCK = 50
_MORE_SEEDS = 30


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = explore(seed)
    assert outcome.problem is None, outcome
    assert outcome.acked > 20


@pytest.mark.full
@pytest.mark.parametrize("block", range(60))
def test_nothing_acknowledged_is_lost_in_many_seeds(block: int) -> None:
    for seed in range(1000 + block * _BLOCK, 1000 + (block + 1) * _BLOCK):
        outcome = explore(seed)
        assert outcome.problem is None, outcome


@pytest.mark.parametrize("mutation", FOUND_BY, ids=lambda m: m.__name__)
def test_a_mistake_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seed that found it first; by one that follows, where something has shifted since."""
    seed, kinds, _ = FOUND_BY[mutation]
    mutation(monkeypatch)
    problems = (explore(attempt, kinds=kinds).problem for attempt in range(seed, seed + _MORE_SEEDS))
    found = next((problem for problem in problems if problem is not None), None)
    assert found is not None, f"none of {_MORE_SEEDS} seeds finds it"
    assert not found.startswith("the run itself failed"), found
