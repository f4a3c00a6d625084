"""Acknowledgements, the comparison of two moments, and incidents as files, over a phantom cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.cli.console import incident_target
from barnabas.console.incidents import read_about
from barnabas.console.state import ConsoleOptions
from barnabas.history.reader import History
from barnabas.testing.phantom import PhantomCluster


def _shrink(console: RunningConsole, phantom: PhantomCluster, topic: str, partition: int) -> None:
    """Removes a follower from an ISR, and waits until the console knows it."""
    phantom.change(lambda state: state.shrink_isr(topic, partition, state.topics[topic].partitions[partition].isr[-1]))
    console.until(
        lambda: console.get("topic", name=topic)["partitions"][partition]["severity"] == "warning", "the ISR shrinks"
    )


def test_an_acknowledgement_is_shown_last_and_ends_with_the_state(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    _shrink(console, phantom, "topic-00001", 0)
    _shrink(console, phantom, "topic-00002", 0)
    body = {"partitions": [{"topic": "topic-00001", "partition": 0}], "note": "seen"}
    planned = console.post("actions/acknowledge", body | {"dry_run": True}).json
    assert planned["plan"][0] == "acknowledges 1 partitions, until their state changes"
    assert console.get("overview")["acknowledged"] == 0
    assert console.post("actions/acknowledge", body).status == 200
    found = console.get("overview")
    assert [row["topic"] for row in found["worst"]] == ["topic-00002", "topic-00001"]
    assert found["worst"][1]["acknowledged"]["user"] == "local"
    assert found["worst"][1]["acknowledged"]["note"] == "seen"
    assert found["acknowledged"] == 1
    _shrink(console, phantom, "topic-00003", 0)
    assert console.get("overview")["acknowledged"] == 1, "a change of another partition"
    back = phantom_replica(phantom, "topic-00001")
    phantom.change(lambda state: state.expand_isr("topic-00001", 0, back))
    console.until(lambda: console.get("overview")["acknowledged"] == 0, "it is well, so it is not acknowledged")
    assert console.post("actions/acknowledge", body).code == "refused"
    assert console.post("actions/acknowledge", {"partitions": None}).status == 200
    assert console.get("overview")["acknowledged"] == 2
    assert console.post("actions/acknowledge", {"partitions": None, "withdraw": True}).status == 200
    assert console.get("overview")["acknowledged"] == 0
    assert {each["action"] for each in console.get("audit")["entries"]} == {"acknowledge"}


def phantom_replica(phantom: PhantomCluster, topic: str) -> int:
    """Returns the replica that is out of sync."""
    partition = phantom.state.topics[topic].partitions[0]
    return next(each for each in partition.replicas if each not in partition.isr)


def test_acknowledgements_are_sent_to_open_pages_one_right_after_the_other(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    _shrink(console, phantom, "topic-00001", 0)
    with console.live("overview") as messages:
        next(messages)
        begin_s = time.monotonic()
        for count in (1, 0, 1):
            assert console.post("actions/acknowledge", {"partitions": None, "withdraw": count == 0}).status == 200
            for _, event, data in messages:
                if event == "data" and data["data"]["acknowledged"] == count:
                    break
        assert time.monotonic() - begin_s < 4, "a stream that waits for other news waits for 5 s"


def _moment(console: RunningConsole) -> int:
    """Returns a moment that is recorded, with some time around it."""
    time.sleep(1.2)
    found = time.time_ns() // 1_000_000
    time.sleep(0.1)
    return found


def _recorded(console: RunningConsole, time_ms: int) -> None:
    console.until(lambda: (console.get("history")["last_ms"] or 0) > time_ms, "the recording continues")


def test_two_moments_are_compared(console: RunningConsole, phantom: PhantomCluster) -> None:
    first_ms = _moment(console)
    phantom.change(lambda state: state.kill(2))
    phantom.change(lambda state: state.create_topic("new", 3))
    phantom.change(lambda state: state.delete_topic("topic-00004"))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISRs shrink")
    console.until(lambda: console.ask("topic", name="new").status == 200, "the topic is there")
    console.until(lambda: console.ask("topic", name="topic-00004").status == 404, "the topic is gone")
    console.until(lambda: bool(console.ask("overview").json["silent"]), "the broker is silent")

    def in_isr() -> int:
        # Silence alone changes a severity, also of a partition whose smaller ISR is not known yet.
        rows = console.get("compare", **{"from": first_ms})["partitions"]
        return sum(2 in row["isr"][1] for row in rows)

    console.until(lambda: in_isr() == 0, "the broker left every ISR")
    found = console.get("compare", **{"from": first_ms})
    assert (found["created"], found["deleted"], found["recreated"]) == (["new"], ["topic-00004"], [])
    assert [(each["broker"], each["first"]) for each in found["brokers"]] == [(2, "answers")]
    assert found["same"] == 0, "every partition had a replica on the broker"
    assert found["changed"] == console.get("overview")["partitions"] - 3
    for row in found["partitions"]:
        assert 2 in row["isr"][0]
        assert 2 not in row["isr"][1]
    assert sum(each["first"] for each in found["counts"] if each["severity"] != "ok") == 0
    same = console.get("compare", **{"from": first_ms, "at": first_ms})
    assert (same["changed"], same["brokers"], same["created"]) == (0, [], [])
    assert console.ask("compare").code == "bad-request"
    assert console.ask("compare", **{"from": 5}).code == "not-found"


def test_a_saved_incident_is_the_same_on_another_machine(
    console: RunningConsole, phantom: PhantomCluster, tmp_path: Path
) -> None:
    first_ms = _moment(console)
    phantom.change(lambda state: state.kill(2))
    console.until(lambda: console.get("overview")["severity"] == "warning", "the ISRs shrink")
    broken_ms = _moment(console)
    _recorded(console, broken_ms)
    answer = console.ask("incident-file", **{"from": first_ms, "to": broken_ms, "note": "=cmd|a"})
    assert answer.status == 200, answer.body
    assert answer.headers["content-disposition"].startswith('attachment; filename="incident-phantom-')
    path = tmp_path / "elsewhere" / "incident.db"
    path.parent.mkdir()
    path.write_bytes(answer.body)
    phantom.change(lambda state: state.delete_topic("topic-00005"))
    with History.open(path) as found, History.open(tmp_path / "history.db") as whole:
        for time_ms in (first_ms, broken_ms):
            assert list(found.at(time_ms).values()) == list(whole.at(time_ms).values())
        assert found.span()[1] == broken_ms
        assert [change.text for change in found.events()] == [
            change.text for change in whole.events(until_ms=broken_ms)
        ]
    with RunningConsole([incident_target(path)], ConsoleOptions(interval_s=0.1)) as other:
        shown = other.session()
        assert shown["clusters"][0]["incident_ms"] == broken_ms
        about = other.get("incident")
        assert (about["note"], about["cluster"], about["since_ms"]) == ("=cmd|a", "phantom", first_ms)
        assert any("out of sync since" in line for row in about["worst"] for line in row["explanation"])
        overview = other.ask("overview").json
        assert (overview["at_ms"], overview["data"]["severity"]) == (broken_ms, "warning")
        assert other.get("overview", at=first_ms)["severity"] == "ok"
        assert other.ask("map").status == other.ask("timeline").status == 200
        assert other.get("whatif", ask="lose-broker", broker=3)["verdict"] == "degraded"
        assert other.post("actions/elect", {"kind": "preferred"}).code == "past"
        assert other.ask("messages", topic="topic-00001").code == "unreachable"
        assert other.ask("moves").code == "unreachable"
        assert other.ask("history").json["data"]["recording"] is False
    assert console.get("incident") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[]",
        '{"schema": 2, "note": "of a later version"}',
    ],
    ids=len,
)
def test_a_text_that_is_of_no_incident_is_none(text: str) -> None:
    assert read_about(text) is None


def test_what_a_stranger_wrote_into_a_file_has_the_form_that_the_page_needs() -> None:
    hostile = {"schema": 1, "note": ["<b>"], "severity": "fatal", "since_ms": "soon", "until_ms": True, "user": None}
    worst = [None, 5, {"explanation": "text"}, {"explanation": [{"a": 1}, "line"]}]
    found = read_about(json.dumps(hostile | {"worst": worst}))
    assert found == {
        "cluster": "",
        "cluster_id": "",
        "user": "",
        "note": "['<b>']",
        "shown_ms": 0,
        "since_ms": 0,
        "until_ms": 0,
        "severity": "ok",
        "worst": [{"explanation": []}, {"explanation": ["{'a': 1}", "line"]}],
    }


def test_an_incident_of_no_recorded_time_is_refused(console: RunningConsole, tmp_path: Path) -> None:
    _recorded(console, 0)
    assert console.ask("incident-file", **{"from": 5_000, "to": 4_000}).code == "bad-request"
    text = tmp_path / "text.db"
    text.write_text("no history")
    with PhantomCluster(topics=1) as other, RunningConsole([target_of(other)]) as bare:
        bare.filled()
        assert bare.ask("incident-file").code == "not-found"
        assert bare.ask("compare", **{"from": 1}).code == "not-found"
