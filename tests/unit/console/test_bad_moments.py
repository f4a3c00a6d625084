"""Accidents while a page is open: the disk fills up, a topic is deleted, a broker or the controller is gone in the
middle of an action.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.console_server import RunningConsole

from barnabas.console.recording import Recording
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.testing.phantom import PhantomCluster

MOVE = {"partitions": [{"topic": "topic-00001", "partition": 0, "replicas": [3, 2, 1]}]}


def _in_loop(console: RunningConsole, work: Any) -> None:
    async def run() -> None:
        work()

    asyncio.run_coroutine_threadsafe(run(), console._loop).result(10)


def test_a_full_disk_ends_the_recording_and_the_page_goes_on(console: RunningConsole, phantom: PhantomCluster) -> None:
    assert console.console is not None
    recording = console.console.recordings["phantom"]
    assert isinstance(recording, Recording)
    connection = recording._recorder._connection

    def fill() -> None:
        # SQLite reports a full disk, too, if the file reaches its maximum of pages.
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    console.until(lambda: bool(console.get("history")["last_ms"]), "the recording begins")
    _in_loop(console, fill)
    console.until(lambda: _is_full(console, phantom), "the recording does not end", within_s=60)
    assert "full" in console.get("history")["problem"]
    assert console.get("history")["recording"] is False
    with console.live("map") as messages:
        phantom.change(lambda state: state.kill(2))
        assert next(data["count"] for _, event, data in messages if event == "cells")
    console.until(lambda: bool(console.ask("overview").json["silent"]), "the console follows the cluster")
    assert console.get("history")["first_ms"], "what was recorded can be read"


def _is_full(console: RunningConsole, phantom: PhantomCluster) -> bool:
    for number in range(20):
        phantom.change(lambda state, number=number: state.elect(f"topic-{number:05d}", 0, 1 + number % 3))  # type: ignore[misc]
    return console.get("history")["recording"] is False


def test_a_topic_that_is_deleted_while_it_is_shown_says_so(console: RunningConsole, phantom: PhantomCluster) -> None:
    with console.live("topic", name="topic-00004") as messages:
        assert next(messages)[1] == "hello"
        phantom.change(lambda state: state.delete_topic("topic-00004"))
        reason = next(data["reason"] for _, event, data in messages if event == "reload")
    assert reason == "there is no topic topic-00004"
    answer = console.ask("topic", name="topic-00004")
    assert (answer.status, answer.code) == (404, "not-found")


def test_an_action_whose_answer_is_lost_is_unknown_and_not_repeated(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    def lose(_request: object) -> Message:
        raise ConnectionResetError("the broker dies before it answers")

    for broker in phantom._brokers.values():
        broker._answers._by_request[AlterPartitionReassignmentsRequest] = lose
    answer = console.post("actions/reassign", MOVE)
    assert answer.code == "unreachable"
    assert "the outcome is unknown" in answer.json["error"]["text"]
    assert phantom.requests[AlterPartitionReassignmentsRequest.NAME] == 1, "it is sent once"
    entries = console.get("audit")["entries"]
    assert [each["result"] for each in entries[:2]] == ["refused", "begun"]
    lines = console.ask("audit", format="csv").body.decode().splitlines()
    assert lines[0].startswith("id,time_ms,user,role")
    assert len(lines) == 1 + len(entries)
    assert ",reassign,refused," in lines[1]


def test_an_action_without_a_reachable_controller_says_so(console: RunningConsole, phantom: PhantomCluster) -> None:
    console.session()
    for broker in (1, 2, 3):
        phantom.silence(broker)
    answer = console.post("actions/reassign", MOVE)
    assert answer.code == "unreachable"
    assert "no broker answers" in answer.json["error"]["text"]
    for broker in (1, 2, 3):
        phantom.silence(broker, is_silent=False)
