"""Whole clusters with transactions and groups: seeds that must pass, and mistakes that they must find."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from tests.support import group_mutations
from tests.support.group_mutations import FOUND_BY, Mutation
from tests.support.mistakes import cases

from barnabas.simulation.explore import explore
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.scenario import Outcome, Settings, run
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature

#: Mistakes that are found after several seconds.
_LATE = [group_mutations.epochs_are_given_twice]
THREE = Layout(brokers=3)
TRANSACTIONS = Settings(seed=0, layout=THREE, work=WorkKind.TRANSACTIONS, faults_s=20, records_per_s=4.0)
GROUPS = replace(TRANSACTIONS, work=WorkKind.GROUPS)
_BLOCK = 25
_MORE_SEEDS = 3


def explain(outcome: Outcome) -> str:
    return "\n".join([f"seed {outcome.settings.seed}", *outcome.problems[:5], *map(str, outcome.notes)])


def test_chains_make_one_receipt_of_each_payment() -> None:
    """Coordinators die with transactions under way, a chain is away for longer than its transaction may last, and
    another dies (G23, G24)."""
    faults = (
        Fault(4_000, FaultKind.KILL, "broker1", duration_ms=1_500),
        Fault(6_000, FaultKind.PAUSE_CLIENT, "chain1", duration_ms=5_000),
        Fault(8_000, FaultKind.KILL, "broker2", duration_ms=1_500),
        Fault(9_000, FaultKind.KILL_CLIENT, "chain2", duration_ms=500),
        Fault(10_000, FaultKind.PAUSE, "broker3", duration_ms=3_000),
    )
    outcome = run(replace(TRANSACTIONS, seed=3, faults_s=10, records_per_s=2.0, schedule=faults))
    assert not outcome.failed, explain(outcome)
    assert outcome.acked > 200
    assert outcome.polled > 300


@pytest.mark.full
def test_a_marker_that_a_clean_stop_left_above_the_hw_still_holds_readers_back() -> None:
    """A broker whose log ends with a marker above the HW shuts down cleanly. Its snapshot does not have that."""
    faults = (
        Fault(15_991, FaultKind.STOP, "broker1", duration_ms=9_798),
        Fault(21_318, FaultKind.PAUSE, "broker2", duration_ms=1_948),
    )
    outcome = run(replace(TRANSACTIONS, seed=10, schedule=faults))
    assert not outcome.failed, explain(outcome)


@pytest.mark.full
def test_a_group_that_lost_its_tombstones_is_loaded_as_its_log_says() -> None:
    """A replica of `__consumer_offsets` is away for longer than `delete.retention.ms`; then it leads."""
    outcome = run(replace(GROUPS, seed=7404, faults_s=60, features=tuple(WorkFeature), draws_properties=True))
    assert not outcome.failed, explain(outcome)


@pytest.mark.full
def test_a_replica_that_is_being_added_for_minutes_is_not_missed_by_gauges() -> None:
    features = (WorkFeature.REGISTERS,)
    settings = replace(TRANSACTIONS, seed=307, faults_s=60, records_per_s=None, features=features)
    outcome = run(replace(settings, draws_properties=True))
    assert not outcome.failed, explain(outcome)


@pytest.mark.parametrize("seed", [2, pytest.param(1, marks=pytest.mark.full), pytest.param(4, marks=pytest.mark.full)])
def test_groups_lose_no_commit_and_no_partition_has_two_owners(seed: int) -> None:
    """The run of seed 2 has both kinds of members in one group."""
    outcome = run(replace(GROUPS, seed=seed))
    assert not outcome.failed, explain(outcome)
    assert outcome.polled > 100, "commits"


def test_a_run_with_groups_is_the_same_again() -> None:
    once, again = (run(replace(GROUPS, seed=5, faults_s=8)) for _ in range(2))
    assert once.trace_hash == again.trace_hash


@pytest.mark.full
@pytest.mark.parametrize("settings", [TRANSACTIONS, GROUPS], ids=["transactions", "groups"])
@pytest.mark.parametrize("first", range(1000, 1500, _BLOCK))
def test_every_promise_holds_in_many_runs(settings: Settings, first: int) -> None:
    for outcome in explore((replace(settings, seed=seed) for seed in range(first, first + _BLOCK)), jobs=1):
        assert not outcome.failed, explain(outcome)


def test_every_mistake_is_tried() -> None:
    functions = inspect.getmembers(group_mutations, inspect.isfunction)
    own = {f for name, f in functions if f.__module__ == group_mutations.__name__ and not name.startswith("_")}
    assert own == set(FOUND_BY)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mutation", cases(FOUND_BY, late=_LATE))
def test_a_mistake_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed that found the mistake first finds it, or a later one where the runs have shifted."""
    settings, says = FOUND_BY[mutation]
    # Some mistakes would be found in the decision itself, before they have an effect.
    monkeypatch.setattr(SecondDecisions, "check", lambda *_: None)
    mutation(monkeypatch)
    seeds = range(settings.seed, settings.seed + _MORE_SEEDS)
    outcomes = (run(replace(settings, seed=seed)) for seed in seeds)
    assert any(says in problem for outcome in outcomes for problem in outcome.problems)
