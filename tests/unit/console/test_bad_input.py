"""Input that is too late or from another time: a page that slept for a day, two operators, a clock that is behind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions, clock_ms
from barnabas.history.reader import History
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.testing.phantom import PhantomCluster

TOPICS, PARTITIONS = 30, 4
HOUR_MS = 3_600_000


def _table(console: RunningConsole) -> ClusterTable:
    assert console.console is not None
    return next(iter(console.console.screens.values())).cluster.table


def test_a_page_that_slept_for_a_day_gets_all_it_missed_or_reloads(
    console: RunningConsole, phantom: PhantomCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.monitor.table._ROWS_KEPT_MAX", 50)
    with console.live("timeline") as messages:
        position, _, _ = next(messages)
    phantom.change(lambda state: state.kill(2))
    console.until(lambda: bool(console.ask("overview").json["silent"]), "the broker is down")
    phantom.change(lambda state: state.start(2))
    console.until(lambda: not console.ask("overview").json["silent"], "the broker is up")
    assert _table(console).since(int(position.split(".")[1])) is None, "so old a version is not kept"
    with console.live("map", after=position) as messages:
        assert next(event for _, event, _ in messages if event in ("reload", "cells")) == "reload"
    with console.live("topic", after=position, name="topic-00001") as messages:
        found = next(data for _, event, data in messages if event == "data")
        assert all(len(row["isr"]) == 3 for row in found["data"]["partitions"]), "it shows the present"
    with console.live("timeline", after=position) as messages:
        events = next(data["events"] for _, event, data in messages if event == "events")
        assert {"broker-gone", "broker-started"} & {each["kind"] for each in events} or len(events) > 1


def test_two_operators_at_once_are_both_asked_for_and_in_the_audit(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    console.session()
    wanted = ([3, 2, 1], [2, 3, 1])

    def move(replicas: list[int]) -> int:
        body = {"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": replicas}]}
        return console.post("actions/reassign", body).status

    with ThreadPoolExecutor(2) as threads:
        statuses = list(threads.map(move, wanted))
    assert statuses == [200, 200]
    assert phantom.requests[AlterPartitionReassignmentsRequest.NAME] == 2
    entries = [each for each in console.get("audit")["entries"] if each["action"] == "reassign"]
    assert [each["result"] for each in entries].count("ok") == 2
    begun = {str(each["arguments"]["partitions"][0]["replicas"]) for each in entries if each["result"] == "begun"}
    assert begun == {str(each) for each in wanted}


@pytest.fixture
def slow_clock(phantom: PhantomCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningConsole]:
    """Provides a console whose clock is an hour behind that of the brokers."""
    monkeypatch.setattr("barnabas.console.state.clock_ms", lambda: clock_ms() - HOUR_MS)
    options = ConsoleOptions(interval_s=0.1, timeout_s=1.0, budget_share=1.0, history=tmp_path / "slow.db")
    with RunningConsole([target_of(phantom)], options) as running:
        running.filled()
        yield running


def test_a_clock_that_is_behind_shows_and_records_what_happens(
    slow_clock: RunningConsole, phantom: PhantomCluster
) -> None:
    console = slow_clock
    now_ms = console.ask("overview").json["now_ms"]
    assert abs(clock_ms() - HOUR_MS - now_ms) < 10_000
    phantom.change(lambda state: state.kill(2))
    console.until(lambda: bool(console.ask("overview").json["silent"]), "the broker is down")
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISRs shrink")
    assert all(each["age_ms"] is None or each["age_ms"] >= 0 for each in console.ask("overview").json["silent"])
    console.until(lambda: "broker-gone" in str(console.get("timeline")), "the events are not there")
    console.until(lambda: (console.get("history")["last_ms"] or 0) > now_ms, "it is recorded", within_s=30)
    last_ms = console.get("history")["last_ms"]
    assert console.get("overview", at=last_ms)["severity"] == "warning"


def test_a_history_of_another_cluster_is_neither_shown_nor_continued(
    console: RunningConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.until(lambda: bool(console.get("history")["last_ms"]), "something is recorded")
    last_ms = console.get("history")["last_ms"]
    console.__exit__(None, None, None)
    path = tmp_path / "history.db"
    monkeypatch.setattr("barnabas.testing.phantom_answers.CLUSTER_ID", "another-cluster-000000")
    with PhantomCluster(topics=2) as other:
        options = ConsoleOptions(interval_s=0.1, budget_share=1.0, history=path)
        with RunningConsole([target_of(other)], options) as running:
            running.filled()
            running.until(lambda: running.get("history")["recording"] is False, "the recording does not end")
            found = running.get("history")
            for text in (found["problem"], found["text"]):
                assert "this is the history of cluster" in text
                assert "this cluster is another-cluster-000000" in text
            assert (found["first_ms"], found["minutes"]) == (None, [])
            answer = running.ask("overview", at=last_ms)
            assert answer.code == "not-found"
            assert "this is the history of cluster" in answer.json["error"]["text"]
            assert running.ask("compare", **{"from": last_ms}).code == "not-found"
            assert running.ask("incident-file").code == "not-found"
            assert running.session()["history"] is None
            assert running.get("overview")["topics"] == 2, "the cluster is shown"
    with History.open(path) as history:
        assert history.cluster_id != "another-cluster-000000"


def test_names_that_do_not_exist_need_no_memory(console: RunningConsole) -> None:
    assert console.console is not None
    older = console.console.screens["phantom"].cluster.older
    for number in range(20):
        assert console.ask("partition", topic=f"none-{number}", partition=number).code == "not-found"
    assert not older
    assert console.ask("partition", topic="topic-00001", partition=0).status == 200
    assert list(older) == [("topic-00001", 0)]


def test_the_states_of_so_many_partitions_are_kept(console: RunningConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.reading._LANES_KEPT", 3)
    assert console.console is not None
    for number in range(5):
        assert console.ask("partition", topic=f"topic-0000{number}", partition=0).status == 200
    kept = list(console.console.screens["phantom"].cluster.older)
    assert kept == [(f"topic-0000{number}", 0) for number in (2, 3, 4)]
