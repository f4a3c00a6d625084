"""Whole runs of a cluster in ZooKeeper mode: faults strike its server too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.cli import simulate_runs
from barnabas.embedded.failures import Failure
from barnabas.simulation.explore import explore
from barnabas.simulation.fault_schedules import FaultGenerator
from barnabas.simulation.faults import FaultKind
from barnabas.simulation.scenario import Outcome, Settings, run, schedule_of
from barnabas.simulation.simulated_cluster import ZOOKEEPER, Layout
from barnabas.simulation.world import World

QUICK = Settings(seed=0, faults_s=20, layout=Layout(brokers=3, zookeeper=True))


def explain(outcome: Outcome) -> str:
    return "\n".join([f"seed {outcome.settings.seed}", *outcome.problems[:5], *map(str, outcome.notes)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [*range(1, 5), 7, 24])
def test_every_promise_holds(seed: int) -> None:
    outcome = run(replace(QUICK, seed=seed))
    assert not outcome.failed, explain(outcome)
    assert outcome.acked > 50


def test_a_write_decided_on_top_of_a_refused_one_is_refused() -> None:
    """Seed 1146 wrote the assignment of a moved partition without its state: while ZooKeeper was away, the controller
    had queued another change of the same topic, which expected the version that another client's write then had.
    """
    outcome = run(replace(QUICK, seed=1146, faults_s=60))
    assert not outcome.failed, explain(outcome)


@pytest.mark.full
@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_every_promise_holds_in_many_runs(first: int) -> None:
    for outcome in explore((replace(QUICK, seed=seed, faults_s=60) for seed in range(first, first + 20)), jobs=1):
        assert not outcome.failed, explain(outcome)


def test_a_seed_gives_the_same_run_again() -> None:
    settings = replace(QUICK, seed=2, faults_s=5)
    assert run(settings).trace_hash == run(settings).trace_hash


def test_faults_strike_the_server_and_spare_what_zookeeper_mode_cannot_keep() -> None:
    """No broker loses power, because ZooKeeper mode does not notice that a broker came back without its unsynced
    records."""
    faults = [fault for seed in range(60) for fault in schedule_of(replace(QUICK, seed=seed, faults_s=120))]
    struck = {fault.kind for fault in faults if fault.node == ZOOKEEPER}
    assert {FaultKind.KILL, FaultKind.PAUSE, FaultKind.POWER, FaultKind.PARTITION, FaultKind.RESET} <= struck
    assert {fault.node for fault in faults if fault.kind is FaultKind.POWER} == {ZOOKEEPER}
    assert not [fault for fault in faults if fault.kind is FaultKind.LOSE_DISK]
    assert not FaultGenerator(QUICK.layout, [], [FaultKind.LOSE_DISK]).draw(World(1).stream("any"), 0, 10_000)


def test_the_command_repeats_a_run_in_zookeeper_mode() -> None:
    settings = simulate_runs.settings_for(3, "all", 0.01, brokers=3, controllers=0, zookeeper=True)
    assert settings.layout == Layout(brokers=3, zookeeper=True)
    with pytest.raises(Failure, match="the brokers are the controllers"):
        simulate_runs.settings_for(3, "all", 0.01, brokers=3, controllers=3, zookeeper=True)


@pytest.mark.parametrize("work", ["transactions", "groups"])
def test_work_with_protocols_that_zookeeper_mode_lacks_is_refused(work: str) -> None:
    with pytest.raises(Failure, match="protocols that ZooKeeper mode does not have"):
        simulate_runs.settings_for(1, "all", 1.0, brokers=3, controllers=0, work=work, zookeeper=True)
