"""The reading routes and the live streams over a phantom cluster: what they answer, and how they change."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.console.views.topic import PARTITIONS_MAX
from barnabas.history.reader import History
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState


def columns_of(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the header and the columns of a map."""
    size = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + size])
    kinds = {"u8": "u1", "u16": "<u2", "u32": "<u4"}
    found = {
        name: np.frombuffer(body, kinds[each["type"]], each["length"], each["offset"])
        for name, each in head["columns"].items()
    }
    return head, found


def table_of(console: RunningConsole) -> ClusterTable:
    assert console.console is not None
    return next(iter(console.console.screens.values())).cluster.table


def test_the_map_has_every_partition_in_the_order_of_names(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.shrink_isr("topic-00003", 2, 3))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISR shrinks")
    head, columns = columns_of(console.ask("map", fill="size").body)
    assert head["count"] == len(columns["severity"]) == sum(head["topics"]["counts"])
    assert all(each["offset"] % 8 == 0 for each in head["columns"].values())
    keys = [
        (name, index)
        for name, count in zip(head["topics"]["names"], head["topics"]["counts"], strict=True)
        for index in range(count)
    ]
    table = table_of(console)
    for place, (name, index) in enumerate(keys):
        row = table.row_of(name, index)
        assert row is not None
        state = table.state(row)
        replicas = head["assignments"][columns["assignment"][place]]
        assert replicas == list(state.replicas)
        assert columns["severity"][place] == state.severity
        assert replicas[columns["leader"][place]] == state.leader
        in_sync = [replica for bit, replica in enumerate(replicas) if columns["isr"][place] >> bit & 1]
        assert set(in_sync) == set(state.isr)
        assert columns["min_isr"][place] == (state.min_isr or 0)
    assert len(columns["size"]) == head["count"] * head["width"]
    again, _ = columns_of(console.ask("map", layout=head["layout"]).body)
    assert again["topics"] is None


def test_topics_are_filtered_sorted_and_cut_by_the_server(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.shrink_isr("topic-00007", 0, state.topics["topic-00007"].partitions[0].isr[-1]))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISR shrinks")
    worst = console.get("topics", sort="severity", desc=1, limit=1)
    assert [row["topic"] for row in worst["rows"]] == ["topic-00007"]
    assert worst["matched"] == worst["total"] > 30
    assert [row["topic"] for row in console.get("topics", q="0001", offset=8, limit=5)["rows"]] == [
        "topic-00017",
        "topic-00018",
        "topic-00019",
    ]
    assert console.get("topics", q="TOPIC-*5")["matched"] == 3
    assert console.get("topics", state="warning")["matched"] == 1
    assert console.get("topics", internal=0)["matched"] == 30
    text = console.ask("topics", format="csv", internal=0).body.decode()
    assert len(text.splitlines()) == 31
    assert text.startswith("topic,partitions,")


def test_a_topic_shows_leaders_isrs_offsets_and_lags(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.produce("topic-00001", 0, 500))
    phantom.change(lambda state: state.commit("readers", "topic-00001", 0, 100))
    console.until(lambda: console.get("topic", name="topic-00001")["partitions"][0]["messages"] == 500, "offsets")
    found = console.get("topic", name="topic-00001")
    first = found["partitions"][0]
    assert [first[name] for name in ("start_offset", "high_watermark", "end_offset")] == [0, 500, 500]
    assert first["preferred"] == first["replicas"][0] == first["leader"]
    assert first["osr"] == []
    assert {detail["broker"] for detail in first["details"]} == set(first["replicas"])
    assert {config["name"] for config in found["configs"]} >= {"min.insync.replicas"}
    assert found["total"] == 4
    assert [row["partition"] for row in console.get("topic", name="topic-00001", offset=3)["partitions"]] == [3]


def test_with_one_broker_of_three_every_route_answers_and_says_who_is_silent(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    phantom.silence(2)
    phantom.silence(3)
    routes: list[tuple[str, dict[str, object]]] = [
        ("overview", {}),
        ("topics", {}),
        ("topic", {"name": "topic-00001"}),
        ("partition", {"topic": "topic-00001", "partition": 0}),
        ("brokers", {}),
        ("broker", {"id": 2}),
        ("quorum", {}),
        ("timeline", {}),
        ("groups", {}),
        ("search", {"q": "1"}),
        ("lanes", {"topic": "topic-00001"}),
        ("history", {}),
        ("whatif", {"ask": "lose-broker", "broker": 1}),
    ]
    console.until(lambda: len(console.ask("overview").json["silent"]) == 2, "two brokers are silent")
    for route, parameters in routes:
        begin_s = time.monotonic()
        answer = console.ask(route, **parameters)
        assert answer.status == 200, (route, answer.body)
        assert {each["broker"] for each in answer.json["silent"]} == {2, 3}, route
        assert all(each["reason"] and each["age_ms"] > 0 for each in answer.json["silent"]), route
        assert time.monotonic() - begin_s < 5, route
    assert console.get("broker", id=2)["directories_problem"]
    assert console.get("overview")["severity"] == "critical"


def test_without_any_broker_the_last_state_stays_with_its_age(console: RunningConsole, phantom: PhantomCluster) -> None:
    for broker in (1, 2, 3):
        phantom.silence(broker)
    console.until(lambda: console.ask("overview").json["problem"] is not None, "no broker answers")
    first = console.ask("topics").json
    assert first["data"]["total"] >= 30
    time.sleep(0.2)
    second = console.ask("topics").json
    assert second["known_ms"] == first["known_ms"] < second["now_ms"]
    assert console.ask("topic", name="topic-00001").json["data"]["configs_problem"]
    phantom.silence(1, is_silent=False)
    console.until(lambda: console.ask("overview").json["problem"] is None, "a broker answers again")


def test_a_console_without_a_cluster_says_so_and_fills_when_it_comes() -> None:
    with PhantomCluster(topics=2) as phantom:
        for broker in (1, 2, 3):
            phantom.silence(broker)
        options = ConsoleOptions(interval_s=0.1, timeout_s=0.3, budget_share=1.0)
        with RunningConsole([target_of(phantom)], options) as console:
            console.until(lambda: console.ask("overview").json["problem"] is not None, "no broker answers")
            assert console.ask("overview").json["data"] is None
            assert console.ask("topic", name="topic-00001").code == "unreachable"
            for broker in (1, 2, 3):
                phantom.silence(broker, is_silent=False)
            console.filled()
            assert console.get("overview")["topics"] == 2


def test_a_kill_is_on_the_live_pages_within_a_second(console: RunningConsole, phantom: PhantomCluster) -> None:
    with console.live("map") as cells, console.live("topic", name="topic-00002") as topic:
        assert next(cells)[1] == next(topic)[1] == "hello"
        begin_s = time.monotonic()
        phantom.change(lambda state: state.kill(2))
        # Another controller alone is a change without cells.
        changed = next(data for _, event, data in cells if event == "cells" and data["count"])
        severities = np.frombuffer(base64.b64decode(changed["severity"]), "u1")
        assert severities.max() >= 2
        data = next(
            data["data"]
            for _, event, data in topic
            if event == "data" and all(row["leader"] != 2 for row in data["data"]["partitions"])
        )
        assert time.monotonic() - begin_s < 3
        assert any(row["osr"] == [2] for row in data["partitions"])


def test_a_broker_that_dies_without_a_change_of_cells_is_silent_on_the_map(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    """The broker is in no ISR any more, so its death changes no partition."""

    def empty(state: PhantomState) -> None:
        state.kill(3)
        state.start(3)
        for topic, index, partition in list(state.every()):
            if 3 in partition.isr:
                state.shrink_isr(topic.name, index, 3)

    phantom.change(empty)
    console.until(lambda: not console.ask("overview").json["silent"], "the broker is in the cluster")
    head, _ = columns_of(console.ask("map").body)
    assert not head["silent"]
    with console.live("map", after=f"{head['boot']}.{head['version']}") as messages:
        phantom.change(lambda state: state.kill(3))
        silent = next(data["silent"] for _, event, data in messages if event == "cells" and data["silent"])
        assert [each["broker"] for each in silent] == [3]


def test_another_controller_is_on_the_map_when_no_cell_changes(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    def another(state: PhantomState) -> None:
        state.controller = 3
        state.report("pause", 2, "broker 2 did not run for 3 s")

    with console.live("map") as messages:
        assert next(messages)[1] == "hello"
        phantom.change(another)
        console.until(lambda: bool(console.get("overview")["controller"] == 3), "the console knows it")
        # The stream ends no wait for a message by itself: a change of a cell follows.
        time.sleep(2.0)
        phantom.change(lambda state: state.shrink_isr("topic-00003", 2, 3))
        first = next(data for _, event, data in messages if event == "cells")
        assert (first["controller"], first["count"]) == (3, 0)


def test_another_controller_is_on_the_map_that_was_not_seen_meanwhile(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    with console.live("map") as messages:
        position, _, _ = next(messages)

    def another(state: PhantomState) -> None:
        state.controller = 3
        state.report("pause", 2, "broker 2 did not run for 3 s")

    phantom.change(another)
    console.until(lambda: bool(console.get("overview")["controller"] == 3), "the console knows it")
    with console.live("map", after=position) as messages:
        assert [next(messages)[1] for _ in range(2)] == ["hello", "cells"]


def test_a_map_that_applies_the_cells_of_its_stream_is_the_map_of_the_server(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    head, columns = columns_of(console.ask("map").body)
    mine = {name: np.array(columns[name]) for name in ("severity", "leader", "isr")}
    after = f"{head['boot']}.{head['version']}"
    phantom.change(lambda state: state.shrink_isr("topic-00001", 1, 1))
    with console.live("map", after=after) as messages:
        phantom.change(lambda state: state.kill(3))
        phantom.change(lambda state: state.expand_isr("topic-00001", 1, 1))
        deadline_s = time.monotonic() + 20
        for _, event, data in messages:
            if event == "cells":
                places = np.frombuffer(base64.b64decode(data["positions"]), "<u4")
                for name, column in mine.items():
                    column[places] = np.frombuffer(base64.b64decode(data[name]), column.dtype)
            _, truth = columns_of(console.ask("map").body)
            if all((column == truth[name]).all() for name, column in mine.items()) and (mine["severity"] > 0).any():
                break
            assert time.monotonic() < deadline_s, "the map did not become the server's"


def test_a_stream_continues_where_a_page_was_and_reloads_what_is_too_old(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    with console.live("timeline") as messages:
        position, event, _ = next(messages)
        assert event == "hello"
    phantom.change(lambda state: state.elect("topic-00005", 0, 3))
    console.until(lambda: bool(console.get("timeline", topic="topic-00005")["events"]), "the event is there")
    with console.live("timeline", after=position) as messages:
        events = next(data["events"] for _, event, data in messages if event == "events")
    assert [each["subject"] for each in events] == ["topic-00005-0"]
    assert events[0]["cause"] == "User:tester requested an election"
    with console.live("map", after="00000000.1") as messages:
        assert [event for _, event, _ in (next(messages), next(messages))] == ["hello", "reload"]
    phantom.change(lambda state: state.create_topic("new", 3))
    console.until(lambda: console.ask("topic", name="new").status == 200, "the topic is there")
    with console.live("map", after=position) as messages:
        assert next(event for _, event, _ in messages if event in ("cells", "reload")) == "reload"


@pytest.mark.parametrize("screen", ["overview", "map", "topics", "groups", "timeline", "topic"])
def test_a_page_of_an_earlier_start_of_the_console_fetches_everything_again(
    console: RunningConsole, screen: str
) -> None:
    with console.live(screen, after="00000000.7.3", name="topic-00001") as messages:
        assert "reload" in [event for _, event, _ in (next(messages), next(messages))]
    with console.live(screen, name="topic-00001") as messages:
        assert "reload" not in [event for _, event, _ in (next(messages), next(messages))]


def test_the_file_of_a_topic_has_all_of_its_partitions(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.create_topic("wide", PARTITIONS_MAX + 60))
    console.until(lambda: console.ask("topic", name="wide").status == 200, "the topic is there")
    console.until(lambda: console.get("topic", name="wide")["total"] == PARTITIONS_MAX + 60, "it is whole")
    assert len(console.get("topic", name="wide")["partitions"]) == PARTITIONS_MAX
    lines = console.ask("topic", name="wide", format="csv").body.decode().splitlines()
    assert [line.split(",")[1] for line in lines] == ["partition", *map(str, range(PARTITIONS_MAX + 60))]
    assert console.ask("topic", name="none", format="csv").code == "not-found"


def test_many_partitions_of_one_decision_are_one_event_with_its_cause(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    phantom.change(lambda state: state.kill(3))
    console.until(lambda: bool(console.get("timeline", kind="leader-change")["events"]), "the leaders change")
    (event,) = console.get("timeline", kind="leader-change")["events"]
    assert event["count"] == 40
    assert event["cause"] == "broker 3 was fenced: no process listens at its address"
    name, index = event["sample"][0]["topic"], event["sample"][0]["partition"]
    found = console.get("partition", topic=name, partition=index)
    assert any(event["cause"] in line for line in found["explanation"])
    assert found["lanes"][-1]["leader"] == found["leader"]
    lanes = console.get("lanes", topic=name)["lanes"]
    assert lanes[0]["changes"] >= lanes[-1]["changes"]
    assert console.get("timeline", q="NOTHING LIKE THIS")["total"] == 0


def test_a_moment_of_the_history_shows_every_screen_as_it_was(console: RunningConsole, phantom: PhantomCluster) -> None:
    whole = console.get("topics", sort="severity", desc=1)
    # A second of the recording passes, so that the moment is committed before the change.
    time.sleep(1.2)
    at_ms = time.time_ns() // 1_000_000
    time.sleep(0.1)
    phantom.change(lambda state: state.kill(2))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISRs shrink")
    console.until(lambda: (console.get("history")["last_ms"] or 0) > at_ms, "the recording continues")
    past = console.ask("overview", at=at_ms).json
    assert (past["at_ms"], past["now_ms"]) == (at_ms, at_ms)
    assert past["data"]["severity"] == "ok"
    assert past["silent"] == []
    then = console.get("topics", sort="severity", desc=1, at=at_ms)
    assert [row["topic"] for row in then["rows"]] == [row["topic"] for row in whole["rows"]]
    head, columns = columns_of(console.ask("map", at=at_ms).body)
    assert columns["severity"].max() == 0
    now_head, now = columns_of(console.ask("map").body)
    assert now["severity"].max() > 0
    assert head["layout"] == now_head["layout"]
    assert console.get("topic", name="topic-00001", at=at_ms)["configs_problem"] == "it is not recorded"
    assert console.get("whatif", ask="lose-broker", broker=2, at=at_ms)["verdict"] == "safe"
    assert console.ask("messages", topic="topic-00001", at=at_ms).code == "past"
    assert console.ask("overview", at=1).code == "not-found"


def test_a_map_of_the_past_reads_no_events_and_a_screen_with_events_adds_them(
    console: RunningConsole, phantom: PhantomCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int | None] = []
    events = History.events

    def noted(
        history: History, since_ms: int | None = None, until_ms: int | None = None, *rest: Any, **more: Any
    ) -> Any:
        read.append(until_ms)
        return events(history, since_ms, until_ms, *rest, **more)

    monkeypatch.setattr(History, "events", noted)
    phantom.change(lambda state: state.shrink_isr("topic-00003", 2, 3))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISR shrinks")
    at_ms = time.time_ns() // 1_000_000
    console.until(lambda: (console.get("history")["last_ms"] or 0) > at_ms, "the recording continues", within_s=30)
    routes: dict[str, dict[str, object]] = {
        "map": {},
        "topics": {"sort": "severity", "desc": 1},
        "brokers": {},
        "broker": {"id": 2},
        "quorum": {},
        "search": {"q": "topic"},
        "groups": {},
        "whatif": {"ask": "restart", "broker": 2},
    }
    before = {route: console.ask(route, at=at_ms, **given).body for route, given in routes.items()}
    assert read == []
    assert console.get("timeline", at=at_ms)["total"] > 0
    assert console.get("overview", at=at_ms)["changes"]
    assert read == [at_ms]
    after = {route: console.ask(route, at=at_ms, **given).body for route, given in routes.items()}
    assert after == before, "the events make no difference to them"


def test_two_moments_with_other_replicas_have_each_its_own_map(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    def maps(at_ms: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return columns_of(console.ask("map", at=at_ms).body)

    def moment() -> int:
        at_ms = time.time_ns() // 1_000_000
        console.until(lambda: (console.get("history")["last_ms"] or 0) > at_ms, "it is recorded", within_s=30)
        return at_ms

    first_ms = moment()
    phantom.change(lambda state: state.shrink_isr("topic-00003", 2, 3))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISR shrinks")
    second_ms = moment()
    phantom.change(lambda state: state.create_topic("topic-00003-b", 2))
    console.until(lambda: "topic-00003-b" in str(console.get("topics", q="-b")), "the topic is there")
    third_ms = moment()
    found = [maps(each) for each in (first_ms, second_ms, third_ms, second_ms)]
    heads = [head for head, _ in found]
    assert heads[0]["layout"] == heads[1]["layout"] == heads[3]["layout"] != heads[2]["layout"]
    assert [head["count"] for head in heads] == [heads[0]["count"]] * 2 + [heads[0]["count"] + 2, heads[0]["count"]]
    assert "topic-00003-b" in heads[2]["topics"]["names"]
    severities = [int(columns["severity"].max()) for _, columns in found]
    assert severities[0] < severities[1]
    assert severities[1] == severities[3]


def test_a_page_that_stays_away_holds_no_stream_open(console: RunningConsole) -> None:
    assert console.console is not None
    with console.live("overview") as messages:
        next(messages)
        console.until(lambda: console.console is not None and console.console.streams.open == 1, "a stream is open")
    console.until(lambda: console.console is not None and console.console.streams.open == 0, "no stream is open", 15)


def test_the_console_stops_while_pages_are_open(phantom: PhantomCluster) -> None:
    with RunningConsole([target_of(phantom)]) as console:
        console.filled()
        with console.live("overview") as messages:
            next(messages)
            begin_s = time.monotonic()
            console.__exit__(None, None, None)
            assert [event for _, event, _ in messages][-1] == "bye"
        assert time.monotonic() - begin_s < 10
        with pytest.raises(OSError):
            console.ask("overview")


def test_two_clusters_are_distinguished(phantom: PhantomCluster) -> None:
    with PhantomCluster(topics=1) as other:
        targets = [target_of(phantom, "shop"), target_of(other, "lab")]
        with RunningConsole(targets) as console:
            console.filled()
            console.until(lambda: bool(console.ask("overview", cluster="lab").json["is_filled"]), "the second one")
            assert [each["name"] for each in console.session()["clusters"]] == ["shop", "lab"]
            assert console.get("overview", cluster="lab")["topics"] == 1
            assert console.get("overview")["topics"] >= 30
            assert console.ask("overview", cluster="none").code == "unknown-cluster"


def test_the_audit_log_has_begun_refused_and_done_actions(phantom: PhantomCluster, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with RunningConsole([target_of(phantom)], ConsoleOptions(audit=path)) as console:
        console.filled()
        assert console.post("actions/delete-topic", {"name": "topic-00001", "confirm": "other"}).code == "bad-request"
        body = {"kind": "topic", "name": "topic-00001", "set": {"sasl.password": "hunter2"}, "dry_run": False}
        console.post("actions/alter-configs", body)
        entries = console.get("audit")["entries"]
    assert [entry["result"] for entry in entries if entry["action"] == "delete-topic"] == ["refused", "begun"]
    assert all(entry["user"] == "local" and entry["address"] == "127.0.0.1" for entry in entries)
    assert "hunter2" not in path.read_text()
    written = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    assert written == [entry["id"] for entry in reversed(entries)]


def test_no_answer_waits_for_a_stream_that_is_not_read(console: RunningConsole, phantom: PhantomCluster) -> None:
    async def main() -> None:
        host, port = console.url.removeprefix("http://").rstrip("/").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(b"GET /api/live?screen=map HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await writer.drain()
        for _ in range(5):
            await asyncio.to_thread(phantom.change, lambda state: state.kill(1))
            await asyncio.to_thread(phantom.change, lambda state: state.start(1))
        begin_s = time.monotonic()
        assert (await asyncio.to_thread(console.ask, "overview")).status == 200
        assert time.monotonic() - begin_s < 5
        writer.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_group_shows_its_members_and_the_partitions_that_nobody_reads(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    phantom.change(lambda state: state.commit("readers", "topic-00002", 3, 0))
    phantom.change(lambda state: state.commit("readers", "removed", 0, 5))
    phantom.change(
        lambda state: state.assign(
            "readers", {"a-1": [("topic-00001", 0), ("topic-00001", 2)], "b-1": [("topic-00002", 0)], "c-1": []}
        )
    )
    console.until(lambda: console.ask("group", name="readers").status == 200, "the group is read", within_s=60)
    found = console.get("group", name="readers")
    assert found["assigned"] == [
        {"topic": "removed", "partitions": 0},
        {"topic": "topic-00001", "partitions": 4},
        {"topic": "topic-00002", "partitions": 4},
    ]
    members = {
        each["member"]: [(row["topic"], row["partition"]) for row in each["assignments"]] for each in found["members"]
    }
    assert members == {"a-1": [("topic-00001", 0), ("topic-00001", 2)], "b-1": [("topic-00002", 0)], "c-1": []}
