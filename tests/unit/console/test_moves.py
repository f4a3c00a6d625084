"""Moves as the console plans and measures them: proposals, other replication factors, and the rate of copying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.actions.copies import with_factor
from barnabas.console.state import ConsoleOptions
from barnabas.console.views.moves import Progress
from barnabas.console.watched import WatchedCluster
from barnabas.testing.phantom import PhantomCluster

KEY = ("orders", 0, 3)


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    with (
        PhantomCluster(topics=3, partitions=6, brokers=5) as phantom,
        RunningConsole([target_of(phantom)], ConsoleOptions(interval_s=0.1, budget_share=1.0)) as running,
    ):
        running.filled()
        yield running


def _cluster(console: RunningConsole) -> WatchedCluster:
    assert console.console is not None
    return next(iter(console.console.screens.values())).watched


def test_a_rate_is_the_growth_between_looks_of_the_last_seconds() -> None:
    progress = Progress()
    progress.note(0, {KEY: 0})
    assert progress.rate(KEY) is None, "one look tells no rate"
    progress.note(500, {KEY: 1_000})
    assert progress.rate(KEY) is None, "too short a time"
    progress.note(2_000, {KEY: 10_000})
    assert progress.rate(KEY) == 5_000
    progress.note(30_000, {KEY: 10_000})
    progress.note(40_000, {KEY: 10_000})
    assert progress.rate(KEY) == 0, "old looks are forgotten"
    progress.note(41_000, {KEY: 4_000})
    assert progress.rate(KEY) == 0, "a log that was truncated has no rate below zero"
    progress.note(42_000, {})
    progress.note(43_000, {KEY: 50_000})
    assert progress.rate(KEY) is None, "another move of the partition begins anew"


def test_a_proposal_is_the_same_for_a_seed_and_uses_only_the_brokers(console: RunningConsole) -> None:
    def ask(**more: object) -> Any:
        return console.get("move-plan", topics="topic-00001,topic-00002", **more)

    first = ask(brokers="1,2,4,5", seed=7)
    assert first == ask(brokers="5,4,2,1", seed=7)
    assert len(first["rows"]) == 12
    for row in first["rows"]:
        assert len(set(row["replicas"])) == 3
        assert set(row["replicas"]) <= {1, 2, 4, 5}
        assert len(row["before"]) == 3
    assert any(ask(brokers="1,2,4,5", seed=seed) != first for seed in range(5))
    for wrong in ({"brokers": "1,2"}, {"brokers": "1,2,9"}, {"brokers": "x"}):
        assert console.ask("move-plan", topics="topic-00001", **wrong).code == "bad-request", wrong
    assert console.ask("move-plan", topics="none", brokers="1,2,3").code == "not-found"


def test_another_replication_factor_keeps_the_preferred_leader_and_spreads_the_rest(console: RunningConsole) -> None:
    cluster = _cluster(console)
    before = {row["partition"]: row["replicas"] for row in console.get("topic", name="topic-00001")["partitions"]}
    more = with_factor(cluster, "topic-00001", 4)
    assert len(more) == 6
    for (_, partition), replicas in more.items():
        assert replicas is not None
        assert replicas[:3] == before[partition]
        assert len(set(replicas)) == 4
    new = [replicas[3] for replicas in more.values() if replicas is not None]
    assert max(map(new.count, new)) <= 2, "new replicas are spread over brokers"
    fewer = with_factor(cluster, "topic-00001", 1)
    assert list(fewer.values()) == [before[partition][:1] for partition in range(6)]
    assert with_factor(cluster, "topic-00001", 3) == {}
    refused = console.post("actions/change-replication", {"topic": "topic-00001", "replication": 6, "dry_run": True})
    assert refused.code == "refused"
    assert "there are 5" in refused.json["error"]["text"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"partitions": []}, "partitions is empty"),
        ({"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [1, 1]}]}, "a broker twice"),
        ({"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [9]}]}, "there is no broker 9"),
        ({"partitions": 2 * [{"topic": "topic-00001", "partition": 0, "replicas": [1]}]}, "is listed twice"),
        *(
            ({"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [1], "log_dirs": wrong}]}, "log_dirs")
            for wrong in (["/data", "any"], [5], "/data/1", [""], [])
        ),
        (
            {"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": None, "log_dirs": ["/data/1"]}]},
            "log_dirs",
        ),
        (
            {"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [1], "log_dirs": ["/none"]}]},
            "broker 1 has no log directory /none, it has /data/1",
        ),
        (
            {"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [1]}], "directory_throttle": -1},
            "directory_throttle is not",
        ),
        ({"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [1]}], "throttle": 0}, "throttle is not"),
        ({"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [1]}], "throttle": "5"}, "throttle is"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(console: RunningConsole, body: dict[str, Any], text: str) -> None:
    answer = console.post("actions/reassign", body | {"dry_run": True})
    assert answer.code == "bad-request"
    assert text in answer.json["error"]["text"]
