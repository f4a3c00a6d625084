"""`barnabas groups` as a user runs it: against the server under test, and in the full suite against Apache Kafka with
groups of both protocols.
"""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from tests.clients.drivers import Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import COMMON, Server

import kafka_jars
from barnabas.cli import entry


class Done(NamedTuple):
    stdout: str
    stderr: str


Run = Callable[..., Done]

_names = (f"groups-{number}" for number in itertools.count())


def runner(bootstrap: str) -> Run:
    """Runs one command in this process; it must succeed unless `code` says otherwise."""

    def command(*arguments: str, code: int = 0) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            ended = entry.run(["groups", *arguments, "--bootstrap", bootstrap])
        done = Done(out.getvalue(), err.getvalue())
        assert ended == code, done
        return done

    return command


@pytest.fixture
def run(server: Server) -> Run:
    return runner(server.bootstrap)


@pytest.fixture
def topic(server: Server) -> str:
    """Three partitions with ten records each, a second apart."""
    return filled(server)


def filled(server: Server) -> str:
    name = next(_names)
    client = ConfluentKafka(server.bootstrap)
    client.create_topic(name, 3)
    records = [
        Record(b"k", b"%d" % number, partition=partition, timestamp=1_000_000 + 1_000 * number)
        for partition in range(3)
        for number in range(10)
    ]
    client.produce(name, "none", records)
    return name


def offsets(run: Run, group: str) -> dict[int, tuple[int | None, int, int | None]]:
    """Returns committed offset, end offset and lag by partition."""
    [found] = json.loads(run("describe", group, "--json").stdout)
    return {row["partition"]: (row["current_offset"], row["log_end_offset"], row["lag"]) for row in found["offsets"]}


@contextmanager
def consuming(server: Server, group: str, topic: str, **settings: Any) -> Iterator[None]:
    """Runs a member of the group that has read and committed everything, for as long as the `with` lasts."""
    base = {"bootstrap.servers": server.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 3}
    consumer = confluent_kafka.Consumer({**base, "client.id": "reader", "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    committed, stop = threading.Event(), threading.Event()

    def poll() -> None:
        read = 0
        while not stop.is_set():
            read += sum(message.error() is None for message in consumer.consume(50, 0.1))
            if read == 30 and not committed.is_set():
                consumer.commit(asynchronous=False)
                committed.set()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert committed.wait(120), "all is read"
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()


def check_a_group_from_its_first_member_to_its_end(server: Server, run: Run, topic: str, protocol: str) -> None:
    group = f"{topic}-{protocol}"
    settings = {"group.protocol": protocol}
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    with consuming(server, group, topic, **settings):
        [found] = json.loads(run("describe", group, "--json").stdout)
        [member] = found["members"]
        assert (found["type"], found["state"], found["lag"]) == (protocol, "Stable", 0)
        assert found["assignor"] == ("cooperative-sticky" if protocol == "classic" else "uniform")
        assert (found["epoch"] is None) == (protocol == "classic")
        assert (member["epoch"] is None) == (protocol == "classic")
        assert member["client_id"] == "reader"
        assert [row["partition"] for row in member["partitions"]] == [0, 1, 2]
        assert {row["member_id"] for row in found["offsets"]} == {member["member_id"]}
        shown = run("describe", group, "--members", "--state", "--offsets", "--verbose").stdout
        assert f"{topic}:0,1,2" in shown
        assert f"127.0.0.1:{found['coordinator']['port']} ({found['coordinator']['broker_id']})" in shown
        refused = run("reset-offsets", group, "--all-topics", "--to-earliest", "--execute", code=1)
        assert f"group {group} is active (Stable, 1 member)" in refused.stderr
        assert "NON_EMPTY_GROUP" in run("delete", group, code=1).stdout
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in run("delete-offsets", group, "--topic", topic, code=1).stdout
        [listed] = json.loads(run("list", group, "--state", "stable", "--json").stdout)
        assert listed == {"group": group, "type": protocol, "state": "Stable", "simple": False}
    assert "no active members" in run("describe", group).stderr
    run("reset-offsets", group, "--topic", f"{topic}:1", "--to-offset", "4", "--execute")
    assert offsets(run, group) == {0: (10, 10, 0), 1: (4, 10, 6), 2: (10, 10, 0)}
    run("delete-offsets", group, "--topic", f"{topic}:0,2")
    assert offsets(run, group) == {1: (4, 10, 6)}
    assert json.loads(run("delete", group, "--json").stdout) == [{"group": group, "outcome": "deleted"}]
    assert json.loads(run("list", group, "--json").stdout) == []


def check_resets(run: Run, topic: str, tmp_path: Path) -> None:
    """Checks resets of a group that does not exist before."""
    group = f"{topic}-reset"

    def reset(*arguments: str) -> list[int]:
        run("reset-offsets", group, *arguments, "--execute")
        return [offsets(run, group)[partition][0] or 0 for partition in range(3)]

    plan = json.loads(run("reset-offsets", group, "--topic", topic, "--to-latest", "--json").stdout)
    assert [(row["partition"], row["current_offset"], row["new_offset"]) for row in plan] == [
        (0, None, 10),
        (1, None, 10),
        (2, None, 10),
    ]
    assert "no group" in run("describe", group, code=1).stderr, "so far it was only shown"
    assert reset("--topic", topic, "--to-latest") == [10, 10, 10]
    assert reset("--topic", f"{topic}:0,2", "--to-earliest") == [0, 10, 0]
    assert reset("--all-topics", "--to-datetime", "1004500") == [5, 5, 5]
    assert reset("--topic", f"{topic}:1", "--shift-by", "-2") == [5, 3, 5]
    assert reset("--all-topics", "--shift-by", "100") == [10, 10, 10]
    assert reset("--all-topics", "--to-offset", "7") == [7, 7, 7]
    assert reset("--all-topics", "--by-duration", "PT1H") == [10, 10, 10], "nothing is that young"
    assert reset("--all-topics", "--to-current") == [10, 10, 10]
    file = tmp_path / "offsets.csv"
    file.write_text(run("reset-offsets", group, "--all-topics", "--to-offset", "2", "--export").stdout)
    assert offsets(run, group)[0] == (10, 10, 0), "an export changes nothing"
    assert reset("--from-file", str(file)) == [2, 2, 2]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_from_its_first_member_to_its_end(server: Server, run: Run, topic: str, protocol: str) -> None:
    check_a_group_from_its_first_member_to_its_end(server, run, topic, protocol)


def test_offsets_are_reset_in_every_way(run: Run, topic: str, tmp_path: Path) -> None:
    check_resets(run, topic, tmp_path)


def test_requests_that_fail_are_reported_in_one_line(run: Run, topic: str) -> None:
    for arguments, words in (
        (("describe", "never-there"), "no group never-there"),
        (("describe",), "give names of groups, or --all-groups"),
        (("delete", "never-there"), "1 of 1 could not be deleted"),
        (("reset-offsets", "g", "--to-latest"), "choose --topic"),
        (("reset-offsets", "g", "--topic", "never-there", "--to-latest"), "no topic never-there"),
        (("reset-offsets", "g", "--topic", f"{topic}:7", "--to-latest"), f"{topic}-7"),
        (("reset-offsets", "g", "--topic", topic, "--shift-by", "1"), "has not committed"),
    ):
        done = run(*arguments, code=1)
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert "unknown type shared\nexpected one of consumer, classic" in run("list", "--type", "shared", code=1).stderr
    assert "unknown state Stabel\nexpected one" in run("list", "--state", "Stabel", "--state", "empty", code=1).stderr
    both = run("reset-offsets", "g", "--to-latest", "--to-earliest", "--all-topics", code=1)
    assert "give exactly one target" in both.stderr


@pytest.mark.full
def test_the_command_serves_apache_kafka_too(tmp_path: Path) -> None:
    kafka = kafka_jars.KafkaServer(tmp_path / "kafka", properties=COMMON)
    with kafka:
        command = runner(kafka.bootstrap)
        for protocol in ("classic", "consumer"):
            check_a_group_from_its_first_member_to_its_end(kafka, command, filled(kafka), protocol)
        check_resets(command, filled(kafka), tmp_path)
