"""Properties that seeds draw: each choice is valid, seeds differ, and runs with them keep every promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.common.config import BrokerConfig
from barnabas.simulation.scenario import Settings, drawn_properties, run
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.swarm import choices
from barnabas.simulation.work import WorkKind

DRAWN = Settings(seed=0, faults_s=15, layout=Layout(brokers=3), draws_properties=True)


LAYOUTS = [Layout(brokers=3), Layout(brokers=3, zookeeper=True)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_choice_is_a_valid_configuration_with_an_effect(layout: Layout) -> None:
    for choice in choices(layout):
        for properties in replace(layout, properties=choice).node_properties().values():
            warnings = BrokerConfig.from_properties(properties).warnings
            assert not [warning for warning in warnings if any(key in warning for key in choice)]


def test_seeds_draw_different_properties_and_some_keep_a_default() -> None:
    drawn = [drawn_properties(replace(DRAWN, seed=seed)) for seed in range(200)]
    assert len({tuple(sorted(each.items())) for each in drawn}) > 190
    for choice in choices(DRAWN.layout):
        for key in choice:
            assert 20 < sum(key not in each for each in drawn) < 200, key
    assert drawn_properties(replace(DRAWN, draws_properties=False)) == {}


def test_properties_of_the_layout_replace_drawn_ones() -> None:
    layout = Layout(brokers=3, properties={"replica.lag.time.max.ms": "7777"})
    for seed in range(2):
        run_settings = replace(DRAWN, seed=seed, layout=layout, faults_s=1)
        assert not run(run_settings).failed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_promise_holds_with_drawn_properties(seed: int) -> None:
    outcome = run(replace(DRAWN, seed=seed))
    assert not outcome.failed, outcome.problems


@pytest.mark.full
@pytest.mark.parametrize("work", list(WorkKind))
@pytest.mark.parametrize("block", range(10))
def test_every_promise_holds_with_drawn_properties_in_many_runs(work: WorkKind, block: int) -> None:
    for seed in range(1 + block * 20, 21 + block * 20):
        outcome = run(replace(DRAWN, seed=seed, work=work, faults_s=60))
        assert not outcome.failed, (seed, outcome.problems)


def test_each_seed_draws_the_records_per_second_and_a_given_rate_replaces_them() -> None:
    drawn = [Settings(seed=seed, records_per_s=None).size.records_per_s for seed in range(1, 31)]
    assert set(drawn) == {1.0, 3.0, 10.0}
    assert drawn == [Settings(seed=seed, records_per_s=None).size.records_per_s for seed in range(1, 31)]
    assert Settings(seed=1, records_per_s=2.5).size.records_per_s == 2.5
