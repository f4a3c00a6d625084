"""Exploration that is guided by rare events: variations of runs, and which runs are varied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from barnabas.cli import simulate_runs
from barnabas.simulation.faults import DESTRUCTIVE, fault_of, fault_spec, within_limits
from barnabas.simulation.guided_exploration import Guide, explore_guided, is_variation
from barnabas.simulation.scenario import Outcome, Settings, fault_times_ms, run, schedule_of
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.variations import varied

THREE = Settings(seed=7, layout=Layout(brokers=3, controllers=3))
TINY = Settings(seed=1, faults_s=1, producers=1, consumers=1)


def outcome_of(settings: Settings, rare_events: Mapping[str, int], *problems: str) -> Outcome:
    return Outcome(
        settings=settings,
        schedule=schedule_of(settings),
        problems=list(problems),
        trace_hash="",
        events=1,
        virtual_s=1.0,
        cpu_s=1.0,
        sent=0,
        acked=0,
        polled=0,
        unclean=0,
        operated=0,
        rare_events=rare_events,
        notes=[],
        courses={},
    )


def test_variations_keep_the_limits_of_drawn_schedules() -> None:
    random, settings = Random(1), THREE
    begin_ms, end_ms = fault_times_ms(THREE)
    sizes, occurrences, destructive = set(), set(), 0
    for number in range(300):
        before = schedule_of(settings)
        settings = varied(settings if number % 20 else replace(THREE, seed=number), random)
        faults = settings.schedule
        assert faults is not None
        assert faults != before
        assert len(set(faults)) == len(faults)
        assert [fault.at_ms for fault in faults] == sorted(fault.at_ms for fault in faults)
        assert all(begin_ms <= fault.at_ms < end_ms and fault.duration_ms > 0 for fault in faults)
        assert list(within_limits(faults)) == list(faults)
        assert [fault_of(fault_spec(fault)) for fault in faults] == list(faults)
        sizes.add(len(faults))
        occurrences |= {fault.trigger.occurrence for fault in faults if fault.trigger is not None}
        destructive += sum(fault.kind in DESTRUCTIVE for fault in faults)
    assert len(sizes) > 5
    assert 3 in occurrences, "no schedule is drawn with it"
    assert destructive > 50


def test_a_run_without_faults_can_be_varied() -> None:
    quiet = replace(THREE, schedule=())
    assert varied(quiet, Random(3)).schedule
    assert varied(quiet, Random(3)) == varied(quiet, Random(3))


def test_a_seed_and_a_variation_take_turns() -> None:
    guide = Guide(THREE)
    first = guide.next()
    assert (first.seed, first.schedule) == (7, None)
    assert guide.next().seed == 8, "nothing to vary yet"
    guide.add(outcome_of(first, {"a": 1, "b": 1, "c": 0}))
    runs = [guide.next() for _ in range(4)]
    assert [(each.seed, each.schedule is not None) for each in runs] == [(7, True), (9, False), (7, True), (10, False)]
    assert is_variation(outcome_of(runs[0], {}))
    assert not is_variation(outcome_of(runs[1], {}))


def test_runs_that_reach_something_new_are_varied_the_rarest_event_most() -> None:
    guide = Guide(THREE)
    for seed in range(20):
        guide.add(outcome_of(replace(THREE, seed=seed), {"a": 5, "b": 2}))
    guide.add(outcome_of(replace(THREE, seed=20), {"a": 1, "c": 1}))
    guide.add(outcome_of(replace(THREE, seed=21), {"c": 1, "d": 1}, "lost: a record"))
    varied_seeds = [each.seed for each in (guide.next() for _ in range(60)) if each.schedule is not None]
    assert set(varied_seeds) == {0, 20}, "the others reached nothing new, or failed"
    assert varied_seeds.count(20) > varied_seeds.count(0)


@pytest.mark.parametrize("guide", [Guide(TINY, varies=False), Guide(replace(TINY, kinds=()))])
def test_only_seeds_are_run_if_that_is_wanted_or_there_are_no_faults(guide: Guide) -> None:
    guide.add(outcome_of(TINY, {"a": 1, "b": 1}))
    runs = [guide.next() for _ in range(3)]
    assert [(each.seed, each.schedule) for each in runs] == [(1, None), (2, None), (3, None)]


def test_a_run_for_which_no_fault_can_be_drawn_stays_as_it_is() -> None:
    assert varied(replace(TINY, kinds=()), Random(1)).schedule == ()


def test_a_guided_exploration_is_the_same_again_and_each_run_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [outcome for outcome in explore_guided(Guide(TINY), 3, jobs=1) if isinstance(outcome, Outcome)]
    assert [is_variation(outcome) for outcome in runs] == [False, True, False]
    assert run(runs[1].settings).trace_hash == runs[1].trace_hash
    assert not simulate_runs.explore(TINY, 3, 1, as_json=False)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].lower().split() == ["rare", "event", "times", "seeds", "variations"]
    assert "2 seeds and 1 variation, " in shown.err


def test_a_failing_variation_is_named_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = outcome_of(varied(TINY, Random(5)), {"a": 1}, "lost: a record")
    monkeypatch.setattr(simulate_runs, "explore_guided", lambda *_, **__: iter([failing]))
    monkeypatch.setattr(simulate_runs, "shorten_outcome", lambda outcome, _: outcome)
    assert simulate_runs.explore(TINY, 1, 1, as_json=True)
    shown = capsys.readouterr()
    assert "a variation of seed 1 fails: lost: a record" in shown.err
    assert '"variations": 1' in shown.out
    assert "--fault " in shown.out
