"""Moves between the log directories of a broker, and the cancellation of single moves, against a phantom cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.console.views import directories
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

TOPIC, OTHER = "topic-00000", "topic-00001"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RECORDS, RECORD_BYTES = 50, 100
BROKER_RESOURCE = 4


@pytest.fixture
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=2, partitions=4, brokers=4) as running:

        def fill(state: PhantomState) -> None:
            state.directories = 2
            for index in range(4):
                state.produce(TOPIC, index, RECORDS)

        running.change(fill)
        yield running


@pytest.fixture
def console(phantom: PhantomCluster, tmp_path: Path) -> Iterator[RunningConsole]:
    options = ConsoleOptions(interval_s=0.1, timeout_s=1.0, budget_share=1.0, audit=tmp_path / "audit.jsonl")
    with RunningConsole([target_of(phantom)], options) as running:
        running.filled()
        yield running


def _replicas(phantom: PhantomCluster, topic: str = TOPIC, partition: int = 0) -> list[int]:
    return phantom.change(lambda state: list(state.topics[topic].partitions[partition].replicas))


def _row(phantom: PhantomCluster, topic: str = TOPIC, partition: int = 0) -> dict[str, Any]:
    """Returns a row of a plan that keeps the replicas, and puts that of the first broker into its other directory."""
    replicas = _replicas(phantom, topic, partition)
    paths = [f"/data/{replicas[0]}-1", *("any" for _ in replicas[1:])]
    return {"topic": topic, "partition": partition, "replicas": replicas, "log_dirs": paths}


def _futures(phantom: PhantomCluster) -> dict[tuple[str, int, int], tuple[str, int]]:
    return phantom.change(lambda state: dict(state.futures))


def _begin_elsewhere(phantom: PhantomCluster, topic: str, partition: int, broker: int) -> None:
    """Begins a move as another tool does."""

    def begin(state: PhantomState) -> None:
        state.futures[topic, partition, broker] = (f"/data/{broker}-1", 7)
        state.volume_version += 1

    phantom.change(begin)


def _settings(phantom: PhantomCluster, broker: int) -> dict[str, str]:
    return phantom.change(lambda state: dict(state.altered.get((BROKER_RESOURCE, str(broker)), {})))


def _moving(console: RunningConsole) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = console.get("moves")["directories"]["moves"]
    return found


def test_a_plan_with_directories_is_shown_begun_and_watched(console: RunningConsole, phantom: PhantomCluster) -> None:
    row = _row(phantom)
    broker = row["replicas"][0]
    body = {"partitions": [row], "directory_throttle": 1_000}
    plan = console.post("actions/reassign", body | {"dry_run": True}).json["plan"]
    size = RECORDS * RECORD_BYTES
    assert f"{TOPIC}-0 on broker {broker}: /data/{broker} -> /data/{broker}-1, {size:,} bytes to copy" in plan
    assert "at most 1,000 bytes a second are copied between log directories of a broker" in plan
    assert _futures(phantom) == {}, "a dry run begins nothing"

    answer = console.post("actions/reassign", body).json
    assert answer["ok"], answer
    assert _futures(phantom) == {(TOPIC, 0, broker): (f"/data/{broker}-1", 0)}
    assert _settings(phantom, broker) == {RATE: "1000"}
    phantom.change(lambda state: state.copy(TOPIC, 0, broker, 2_000))
    console.until(lambda: [each["copied_bytes"] for each in _moving(console)] == [2_000], "the copy is seen")
    (found,) = _moving(console)
    assert (found["topic"], found["partition"], found["broker"]) == (TOPIC, 0, broker)
    assert (found["from"], found["to"]) == (f"/data/{broker}", f"/data/{broker}-1")
    assert (found["size_bytes"], found["left_bytes"]) == (size, size - 2_000)
    limits = {each["broker"]: each["directory_rate"] for each in console.get("moves")["throttles"]}
    assert limits == {each: 1_000 if each == broker else None for each in (1, 2, 3, 4)}


def test_verify_knows_directories_and_ends_the_throttle(console: RunningConsole, phantom: PhantomCluster) -> None:
    row = _row(phantom)
    broker = row["replicas"][0]
    body = {"partitions": [row], "directory_throttle": 1_000}

    def verify(*, is_dry: bool) -> Any:
        return console.post("actions/verify-moves", {"partitions": [row], "dry_run": is_dry}).json

    where = f"in /data/{broker} rather than /data/{broker}-1"
    assert verify(is_dry=True)["plan"][:2] == [
        "1 not complete",
        f"{TOPIC}-0 on broker {broker}: {where}, and no move to it is in progress",
    ]
    assert console.post("actions/reassign", body).json["ok"]
    assert verify(is_dry=False)["text"] == "1 running"
    assert _settings(phantom, broker) == {RATE: "1000"}, "the throttle stays while it runs"

    def complete(state: PhantomState) -> None:
        state.places[TOPIC, 0, broker] = state.futures.pop((TOPIC, 0, broker))[0]
        state.volume_version += 1

    phantom.change(complete)
    found = verify(is_dry=False)
    assert (found["ok"], found["text"]) == (True, "1 complete; throttles were removed")
    assert _settings(phantom, broker) == {}
    console.until(lambda: _moving(console) == [], "the move is over")


def test_a_broker_that_does_not_answer_is_said_and_keeps_throttles(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    row = _row(phantom)
    broker = next(each for each in row["replicas"] if each != 1)
    row["log_dirs"] = [f"/data/{each}-1" if each == broker else "any" for each in row["replicas"]]
    phantom.silence(broker)

    def is_silent() -> bool:
        return any(each["broker"] == broker and each["problem"] for each in console.get("brokers")["brokers"])

    console.until(is_silent, "the broker is silent")
    refused = console.post("actions/reassign", {"partitions": [row], "dry_run": True})
    assert refused.code == "unreachable"
    assert f"broker {broker} does not list its log directories" in refused.json["error"]["text"]
    assert console.post("actions/verify-moves", {"partitions": [row]}).json["text"] == "1 not known"
    assert [each["broker"] for each in console.get("moves")["directories"]["problems"]] == [broker]


def test_a_move_that_another_tool_began_is_found(
    console: RunningConsole, phantom: PhantomCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look asks for a page of the replicas, so that the last ones are found after some looks."""
    monkeypatch.setattr(directories, "_PAGE", 2)
    monkeypatch.setattr(directories, "_FRESH_MS", 0)
    broker = _replicas(phantom, OTHER, 3)[1]
    _begin_elsewhere(phantom, OTHER, 3, broker)
    found = [len(_moving(console)) for _ in range(4)]
    assert found[0] == 0, "it is on no first page"
    assert found[-1] == 1
    assert _moving(console)[0]["to"] == f"/data/{broker}-1"
    phantom.change(lambda state: state.delete_topic(OTHER))
    console.until(lambda: _moving(console) == [], "it is gone with its topic")


def test_one_move_is_cancelled_and_the_others_run_on(console: RunningConsole, phantom: PhantomCluster) -> None:
    rows = []
    for partition in range(2):
        replicas = _replicas(phantom, TOPIC, partition)
        new = next(each for each in (1, 2, 3, 4) if each not in replicas)
        rows.append({"topic": TOPIC, "partition": partition, "replicas": [*replicas[:-1], new]})
    between = _row(phantom, TOPIC, 2)
    assert console.post("actions/reassign", {"partitions": [*rows, between], "throttle": 9_000}).json["ok"]
    assert [each["partition"] for each in console.get("moves")["moves"]] == [0, 1]
    broker = between["replicas"][0]
    for unknown in (
        {"topic": OTHER, "partition": 0},
        {"topic": TOPIC, "partition": 2, "broker": between["replicas"][1]},
        {"topic": TOPIC, "partition": 0, "broker": broker},
        {"topic": "none", "partition": 0},
    ):
        assert console.post("actions/cancel-moves", {"partitions": [unknown]}).code == "refused", unknown
    wrong = {"topic": TOPIC, "partition": 2, "broker": "1"}
    assert console.post("actions/cancel-moves", {"partitions": [wrong]}).code == "bad-request"

    one: dict[str, Any] = {"partitions": [{"topic": TOPIC, "partition": 1}]}
    plan = console.post("actions/cancel-moves", one | {"dry_run": True}).json["plan"]
    assert plan == ["cancels 1 move", f"{TOPIC}-1: replicas stay {_replicas(phantom, TOPIC, 1)}"]
    answer = console.post("actions/cancel-moves", one).json
    assert (answer["ok"], answer["text"]) == (True, "1 move cancelled")
    assert [each["partition"] for each in console.get("moves")["moves"]] == [0]
    assert _settings(phantom, 1) != {}, "the other move has its throttle"

    assert console.post("actions/cancel-moves", {"partitions": [{"topic": TOPIC, "partition": 0}]}).json["ok"]
    assert _futures(phantom) != {}, "the move between directories runs on"
    one = {"partitions": [{"topic": TOPIC, "partition": 2, "broker": broker}]}
    plan = console.post("actions/cancel-moves", one | {"dry_run": True}).json["plan"]
    assert plan == ["cancels 1 move", f"{TOPIC}-2 on broker {broker}: stays in /data/{broker}"]
    assert console.post("actions/cancel-moves", one).json["ok"]
    assert _futures(phantom) == {}
    assert [_settings(phantom, each) for each in (1, 2, 3, 4)] == [{}] * 4, "the throttles end with the last move"
    audited = [each for each in console.get("audit")["entries"] if each["action"] == "cancel-moves"]
    assert audited[0]["arguments"] == one
    assert {each["result"] for each in audited} == {"begun", "ok", "refused"}


def test_all_moves_are_cancelled_those_between_directories_too(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    """The cancellation of all looks for moves: another tool has begun this one."""
    _begin_elsewhere(phantom, TOPIC, 0, _replicas(phantom)[2])
    answer = console.post("actions/cancel-moves", {}).json
    assert (answer["ok"], answer["text"]) == (True, "1 move cancelled")
    assert _futures(phantom) == {}


def test_a_directory_is_kept_for_a_replica_that_is_created(console: RunningConsole, phantom: PhantomCluster) -> None:
    replicas = _replicas(phantom)
    new = next(each for each in (1, 2, 3, 4) if each not in replicas)
    paths = ["any", "any", f"/data/{new}-1"]
    body = {"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [*replicas[:2], new], "log_dirs": paths}]}
    plan = console.post("actions/reassign", body | {"dry_run": True}).json["plan"]
    assert f"{TOPIC}-0 on broker {new}: begins in /data/{new}-1" in plan
    answer = console.post("actions/reassign", body).json
    assert answer["ok"], answer
    assert phantom.change(lambda state: dict(state.preferred)) == {(TOPIC, 0, new): f"/data/{new}-1"}
    assert phantom.change(lambda state: dict(state.reassigned)) == {(TOPIC, 0): ([new], [replicas[2]])}


def test_rates_of_both_kinds_of_moves_are_set_apart(console: RunningConsole, phantom: PhantomCluster) -> None:
    body = {"directory_rate": 5_000}
    refused = console.post("actions/throttle-moves", body).json["error"]["text"]
    assert "no replica moves between log directories" in refused
    row = _row(phantom)
    broker = row["replicas"][0]
    assert console.post("actions/reassign", {"partitions": [row]}).json["ok"]
    plan = console.post("actions/throttle-moves", body | {"dry_run": True}).json["plan"]
    assert plan == [f"limits the copying between log directories to 5,000 bytes a second at brokers {broker}"]
    assert console.post("actions/throttle-moves", body).json["ok"]
    assert [_settings(phantom, each) for each in (1, 2, 3, 4) if each != broker] == [{}] * 3
    assert _settings(phantom, broker) == {RATE: "5000"}
    assert console.post("actions/throttle-moves", {"rate": 1}).code == "refused", "no replica moves between brokers"
    assert console.post("actions/throttle-moves", {}).json["ok"]
    assert _settings(phantom, broker) == {}


def test_a_plan_for_the_directories_of_a_broker_is_proposed(console: RunningConsole, phantom: PhantomCluster) -> None:
    def ask(**more: object) -> Any:
        return console.ask("directory-plan", **({"broker": 1, "to": "/data/1-1"} | more))

    everything = ask().json["data"]
    assert {row["topic"] for row in everything["rows"]} == {TOPIC, OTHER}
    for row in everything["rows"]:
        assert row["replicas"] == row["before"] == _replicas(phantom, row["topic"], row["partition"])
        assert row["log_dirs"] == ["/data/1-1" if each == 1 else "any" for each in row["replicas"]]
    assert everything["bytes"] == sum(row["bytes"] for row in everything["rows"]) > 0
    some = ask(topics=OTHER, **{"from": "/data/1"}).json["data"]["rows"]
    assert [row for row in everything["rows"] if row["topic"] == OTHER] == some
    assert ask(to="/data/1").json["data"]["rows"] == [], "all are there"
    assert ask(**{"from": "/data/1-1", "to": "/data/1"}).json["data"]["rows"] == [], "none is there"
    assert ask(topics="none").code == "not-found"
    wrongs: list[dict[str, object]] = [
        {"broker": 9},
        {"to": "/data/2"},
        {"from": "/none"},
        {"from": "/data/1-1"},
        {"to": ""},
    ]
    for wrong in wrongs:
        assert ask(**wrong).code == "bad-request", wrong
