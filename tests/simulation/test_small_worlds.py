"""The small worlds of `barnabas simulate`: seeds by name, between runs of whole clusters, and shorter failing ones."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from tests.support import replication_mutations, txn_mutations
from tests.support.replication_mutations import FOUND_BY, Mutation
from tests.support.txn_mutations import FOUND_BY as TXN_FOUND_BY

from barnabas.cli import entry, simulate_runs
from barnabas.simulation.guided_exploration import Guide, choices, explore_guided
from barnabas.simulation.scenario import Outcome, Settings
from barnabas.simulation.worlds import small_worlds
from barnabas.simulation.worlds.replication_explorer import explore
from barnabas.simulation.worlds.small_worlds import WorldKind, WorldOutcome, WorldSettings, run_world

TINY = Settings(seed=1, faults_s=1, consumers=0, producers=1, records_per_s=2.0, operations=(), edits=())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", WorldKind)
def test_a_seed_of_each_world_keeps_every_guarantee_and_is_the_same_again(kind: WorldKind) -> None:
    first, again = run_world(WorldSettings(kind, 3)), run_world(WorldSettings(kind, 3))
    assert first.problem is None, first.timeline[-20:]
    assert (first.events, first.rare_events, first.timeline) == (again.events, again.rare_events, again.timeline)
    assert first.events > 500
    assert sum(times > 0 for times in first.rare_events.values()) > 5


def test_the_seed_of_a_small_world_is_that_of_its_explorer() -> None:
    known, found = explore(5), run_world(WorldSettings(WorldKind.REPLICATION, 5))
    assert (found.events, list(found.schedule)) == (known.events, known.faults)


@pytest.mark.parametrize("kind", [WorldKind.REPLICATION, WorldKind.ZOOKEEPER])
def test_only_the_faults_of_a_run_are_replaced(kind: WorldKind) -> None:
    drawn = run_world(WorldSettings(kind, 4))
    same = run_world(WorldSettings(kind, 4, schedule=drawn.schedule))
    assert (same.events, same.timeline) == (drawn.events, drawn.timeline)
    fewer = run_world(WorldSettings(kind, 4, schedule=drawn.schedule[:1]))
    assert fewer.schedule == drawn.schedule[:1]


def test_runs_of_whole_clusters_and_seeds_of_small_worlds_take_turns() -> None:
    chosen = choices(Guide(TINY, varies=False), 2, [WorldKind.QUORUM, WorldKind.TRANSACTIONS])
    names = [
        f"{each.kind.value} {each.seed}" if isinstance(each, WorldSettings) else f"cluster {each.seed}"
        for each in islice(chosen, 100)
    ]
    of_quorum = [f"quorum {seed}" for seed in range(1, 13)]
    assert names == ["cluster 1", *of_quorum[:6], "transactions 1", "cluster 2", *of_quorum[6:]]


def test_an_exploration_has_outcomes_of_all_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(explore_guided(Guide(TINY), 1, jobs=1, kinds=[WorldKind.QUORUM]))
    assert [type(each) for each in found] == [Outcome, *[WorldOutcome] * 6]
    assert not simulate_runs.explore(TINY, 1, 1, as_json=True, kinds=[WorldKind.QUORUM])
    worlds = json.loads(capsys.readouterr().out)["worlds"]
    assert [(name, each["seeds"], each["failed"]) for name, each in worlds.items()] == [
        ("cluster", 1, 0),
        ("quorum", 6, 0),
    ]
    assert all(each["events"] > 0 and each["cpu_s"] > 0 for each in worlds.values())
    assert worlds["quorum"]["combinations"] > 0


def simulated(options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs the command, which must fail, and returns what it says."""
    monkeypatch.setattr("sys.argv", ["barnabas", "simulate", *options])
    with pytest.raises(SystemExit, match="1"):
        entry.main()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("mutation", "needs_faults"),
    [
        pytest.param(replication_mutations.any_live_replica_is_elected, True, marks=pytest.mark.full),
        (replication_mutations.epoch_without_records_is_not_noted, False),
    ],
)
def test_a_failing_seed_is_shortened_and_its_command_repeats_it(
    mutation: Mutation, needs_faults: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(small_worlds, "_TRIES_MAX", 8)
    mutation(monkeypatch)
    find = FOUND_BY[mutation]
    whole = run_world(WorldSettings(WorldKind.REPLICATION, find.seed))
    assert whole.problem is not None
    options = ["--world", "replication", "--seed", str(find.seed)]
    again = simulated([*options, "--shorten"], monkeypatch, capsys).rpartition("repeat with: ")[2].split()
    assert again[2:6] == options
    assert again.count("--fault") < len(whole.schedule)
    assert ("--fault" in again) is needs_faults
    assert ("none" in again) is not needs_faults
    assert whole.problem.partition(":")[0] in simulated(again[2:], monkeypatch, capsys)


def test_a_failing_seed_of_a_world_without_values_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutation = txn_mutations.lso_is_the_hw
    mutation(monkeypatch)
    seed = str(TXN_FOUND_BY[mutation])
    options = ["--world", "transactions", "--seed", seed, "--explore", "1", "--jobs", "1"]
    monkeypatch.setattr("sys.argv", ["barnabas", "simulate", *options])
    with pytest.raises(SystemExit, match="1"):
        entry.main()
    shown = capsys.readouterr()
    assert f"transactions seed {seed} fails: " in shown.err
    assert f"barnabas simulate --world transactions --seed {seed}" in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--world", "moon"], "no such world"),
        (["--world", "cluster,quorum"], "a single seed runs in one world"),
        (["--world", "quorum", "--fault", "1:kill:broker1:2"], "the seed decides"),
        (["--world", "replication", "--fault", "1:kill:producer1:2"], "there is no producer1"),
        (["--world", "replication", "--fault", "now"], "not AT_MS"),
        (["--world", "replication", "--faults", "kill"], "--faults kill"),
        (["--world", "replication", "--brokers", "3"], "cannot be combined with --brokers"),
        (["--world", "replication", "--explore", "3", "--shorten"], "omit --explore"),
    ],
)
def test_options_without_a_meaning_are_refused(
    options: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["barnabas", "simulate", *options])
    with pytest.raises(SystemExit):
        entry.main()
    assert says in capsys.readouterr().err
