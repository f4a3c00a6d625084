"""Seeds of log-ins, rules and quotas that change under faults, which must pass, and mistakes that they must find."""

from __future__ import annotations

import inspect

import pytest
from tests.support import security_mutations
from tests.support.mistakes import cases
from tests.support.security_mutations import FOUND_BY, Mutation

from barnabas.simulation.worlds.security_explorer import explore

#: Mistakes whose relatives are in the short suite, or that are found after some seconds.
_LATE = [
    security_mutations.a_deny_for_everybody_is_forgotten,
    security_mutations.the_host_of_a_rule_is_ignored,
    security_mutations.a_muting_never_ends,
    security_mutations.fetch_sessions_outlive_their_right,
    security_mutations.waiting_fetches_are_judged_at_their_start_only,
]
_BLOCK = 25
_MORE_SEEDS = 20


@pytest.mark.parametrize("seed", [2, 3])
def test_nothing_happens_without_a_right(seed: int) -> None:
    """Guards S1, S3, S9, S10, S13, S14, S17 and S19; each kind of effect was compared."""
    outcome = explore(seed)
    assert outcome.problem is None, outcome
    counts = {**outcome.counts, "changes": outcome.changes}
    assert min(counts[kind] for kind in ("writes", "reads", "topics", "log-ins", "changes")) > 10, counts
    assert (counts["mutes"] > 10) == (seed == 2), "one seed has quotas"


@pytest.mark.full
@pytest.mark.parametrize("block", range(20))
def test_nothing_happens_without_a_right_in_many_seeds(block: int) -> None:
    for seed in range(1_000 + block * _BLOCK, 1_000 + (block + 1) * _BLOCK):
        outcome = explore(seed)
        assert outcome.problem is None, outcome


def test_every_mistake_is_tried() -> None:
    functions = inspect.getmembers(security_mutations, inspect.isfunction)
    own = {f for name, f in functions if f.__module__ == security_mutations.__name__ and not name.startswith("_")}
    assert own == set(FOUND_BY)
    assert len(own) >= 8


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mutation", cases(FOUND_BY, late=_LATE))
def test_a_mistake_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed that found the mistake first finds it, or a later one where the runs have shifted. All pass without
    it.
    """
    seed, says = FOUND_BY[mutation]
    mutation(monkeypatch)
    problems = (explore(attempt).problem for attempt in range(seed, seed + _MORE_SEEDS))
    found = next((problem for problem in problems if problem is not None), None)
    assert found is not None, f"none of {_MORE_SEEDS} seeds finds it"
    assert says in found
