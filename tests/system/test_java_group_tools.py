"""Kafka 4.1.0's own tools for groups and transactions, unmodified, against three brokers: every command of
`kafka-consumer-groups.sh`, hanging transactions, and the verifiable clients while a broker is killed."""

from __future__ import annotations

import itertools
import json
import re
import signal
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.clients import programs, wire
from tests.clients.drivers import ProcessClient
from tests.support.survival import QUIET, create_topic, wait_until

import kafka_jars
from barnabas.cli import entry
from barnabas.coordinators.partitioning import partition_for
from barnabas.testing import Cluster

TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
PARTITIONS = 2
RECORDS = 10
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    # A test may leave a transaction that no coordinator knows.
    "transaction.partition.verification.enable": "false",
}
_names = (f"tools-{number}" for number in itertools.count())
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("brokers"), brokers=3, properties=PROPERTIES) as made:
        yield made


@pytest.fixture(scope="module")
def jvm(cluster: Cluster) -> Iterator[ProcessClient]:
    java = programs.java(cluster.bootstrap)
    yield java
    java.close()


@pytest.fixture
def groups(cluster: Cluster, jvm: ProcessClient) -> Tool:
    """Runs ConsumerGroupCommand; it succeeds, and does not say "Error"."""

    def run(*args: str) -> str:
        found = jvm.tool(GROUPS, "--bootstrap-server", cluster.bootstrap, *args)
        assert found.code == 0, found.text
        assert "Error" not in found.text, found.text
        return f"{found.out}\n\n{found.err}"

    return run


@pytest.fixture
def refused(cluster: Cluster, jvm: ProcessClient) -> Tool:
    """Runs ConsumerGroupCommand, which does not get what it wants; why, in its own words."""
    return lambda *args: jvm.tool(GROUPS, "--bootstrap-server", cluster.bootstrap, *args).text


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Returns a new topic with RECORDS in each of its PARTITIONS; their timestamps are 1000, 2000 ..."""
    name = next(_names)
    create_topic(cluster, name, PARTITIONS)
    producer = confluent_kafka.Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(name, str(number), partition=partition, timestamp=(number + 1) * 1000)
    assert producer.flush(120) == 0
    return name


@contextmanager
def member(cluster: Cluster, topic: str, protocol: str) -> Iterator[confluent_kafka.Consumer]:
    """Yields a member of the group with the topic's name, which has read and committed everything."""
    settings = {**QUIET, "bootstrap.servers": cluster.bootstrap, "group.id": topic, "group.protocol": protocol}
    settings |= {"client.id": "the-member", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    read = 0
    deadline = time.monotonic() + 120
    while read < RECORDS * PARTITIONS:
        assert time.monotonic() < deadline, f"{read} records were read"
        read += len([one for one in consumer.consume(100, 0.5) if one.error() is None])
    consumer.commit(asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


def table(text: str) -> list[dict[str, str]]:
    """Rows by the names of their columns, of the first table in it; nothing in it has blanks."""
    lines = [line.split() for line in text.splitlines()]
    begin = next(index for index, line in enumerate(lines) if line[:1] == ["GROUP"])
    end = next((index for index, line in enumerate(lines) if index > begin and not line), len(lines))
    return [dict(zip(lines[begin], line, strict=False)) for line in lines[begin + 1 : end]]


def offsets(text: str, column: str = "NEW-OFFSET") -> dict[int, str]:
    return {int(row["PARTITION"]): row[column] for row in table(text)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_and_described(cluster: Cluster, groups: Tool, topic: str, protocol: str) -> None:
    one = ("--group", topic)
    with member(cluster, topic, protocol):
        assert topic in groups("--list").split()
        rows = {row["GROUP"]: row for row in table(groups("--list", "--state", "--type"))}
        assert rows[topic] == {"GROUP": topic, "TYPE": protocol.capitalize(), "STATE": "Stable"}
        assert topic in groups("--list", "--state", "stable", "--type", protocol).split()
        assert topic not in groups("--list", "--state", "empty").split()
        rows_of_it = table(groups("--describe", *one))
        assert [row["CURRENT-OFFSET"] for row in rows_of_it] == [str(RECORDS)] * PARTITIONS
        assert [row["LAG"] for row in rows_of_it] == ["0"] * PARTITIONS
        assert {row["CLIENT-ID"] for row in rows_of_it} == {"the-member"}
        (found,) = table(groups("--describe", *one, "--members"))
        assert (found["CLIENT-ID"], found["#PARTITIONS"]) == ("the-member", str(PARTITIONS))
        assert f"{topic}:0,1" in groups("--describe", *one, "--members", "--verbose").replace(f"{topic}(", f"{topic}:")
        state = groups("--describe", *one, "--state")
        assert "Stable" in state
        assert ("uniform" if protocol == "consumer" else "range") in state
    wait_until(lambda: "Empty" in groups("--describe", *one, "--state"), "its member has left")
    assert "has no active members" in groups("--describe", *one)
    assert topic in groups("--describe", "--all-groups", "--state").split()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_offsets_are_reset_in_every_way(
    cluster: Cluster, groups: Tool, topic: str, protocol: str, tmp_path: Path, refused: Tool
) -> None:
    reset = ("--reset-offsets", "--group", topic)
    with member(cluster, topic, protocol):
        assert "can only be reset if the group" in refused(*reset, "--all-topics", "--to-earliest")
    wait_until(lambda: "Empty" in groups("--describe", "--group", topic, "--state"), "its member has left")
    everything = (*reset, "--topic", topic)
    both = dict.fromkeys(range(PARTITIONS))
    assert offsets(groups(*everything, "--to-earliest")) == dict.fromkeys(both, "0")
    assert offsets(groups("--describe", "--group", topic), "CURRENT-OFFSET") == dict.fromkeys(both, "10")
    ways = [
        (("--to-earliest",), "0"),
        (("--to-latest",), "10"),
        (("--to-offset", "4"), "4"),
        (("--shift-by", "3"), "7"),
        (("--shift-by", "-2"), "5"),
        (("--to-current",), "5"),
        (("--to-datetime", "1970-01-01T00:00:03.000"), "2"),
        (("--by-duration", "PT1H"), "10"),
    ]
    for way, expected in ways:
        assert offsets(groups(*everything, *way, "--execute")) == dict.fromkeys(both, expected), way
        found = offsets(groups("--describe", "--group", topic), "CURRENT-OFFSET")
        assert found == dict.fromkeys(both, expected), way
    assert offsets(groups(*reset, "--topic", f"{topic}:1", "--to-offset", "8", "--execute")) == {1: "8"}
    file = tmp_path / "offsets.csv"
    exported = groups(*everything, "--to-current", "--export")
    file.write_text("".join(line + "\n" for line in exported.splitlines() if line.startswith(f"{topic},")))
    groups(*everything, "--to-earliest", "--execute")
    groups(*reset, "--from-file", str(file), "--execute")
    assert offsets(groups("--describe", "--group", topic), "CURRENT-OFFSET") == {0: "10", 1: "8"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_and_its_offsets_are_deleted(
    cluster: Cluster, groups: Tool, topic: str, protocol: str, refused: Tool
) -> None:
    one = ("--group", topic)
    with member(cluster, topic, protocol):
        assert "GroupNotEmptyException" in refused("--delete", *one)
        assert "actively subscribed to it" in refused("--delete-offsets", *one, "--topic", topic)
    wait_until(lambda: "Empty" in groups("--describe", *one, "--state"), "its member has left")
    assert "Successful" in groups("--delete-offsets", *one, "--topic", f"{topic}:0")
    assert offsets(groups("--describe", *one), "CURRENT-OFFSET") == {1: "10"}
    assert "was successful" in groups("--delete", *one)
    assert topic not in groups("--list").split()
    assert "GroupIdNotFoundException" in refused("--describe", *one)


def test_a_transaction_that_hangs_is_found_and_aborted(cluster: Cluster, jvm: ProcessClient, topic: str) -> None:
    """The transaction was written by a producer that no coordinator knows."""

    def transactions(*args: str) -> str:
        found = jvm.tool(f"{TOOLS}.TransactionsCommand", "--bootstrap-server", cluster.bootstrap, *args)
        assert found.code == 0, found.text
        return found.text

    admin = confluent_kafka.admin.AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    known = admin.list_topics(topic, timeout=60)
    port = known.brokers[known.topics[topic].partitions[0].leader].port
    lost = wire.batch([wire.record(0, None, b"lost")], attributes=0x10, producer=(99_999, 0, 0))
    body = wire.produce_body(topic, 0, lost, acks=-1)
    with wire.Wire(port) as connection:
        # The first field of the body is the transactional id, which was null.
        answer = connection.request(wire.PRODUCE, 7, struct.pack(">h4s", 4, b"lost") + body[2:])
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 2 + len(topic) + 4)
    assert (error, offset) == (0, RECORDS)

    def hanging() -> list[list[str]]:
        text = transactions("find-hanging", "--broker-id", str(known.topics[topic].partitions[0].leader))
        return [line.split() for line in text.splitlines()[1:] if line.startswith(topic)]

    ((_, partition, producer_id, *_),) = hanging()
    assert (partition, producer_id) == ("0", "99999")
    transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", str(RECORDS))
    assert hanging() == []


# -- the verifiable clients


class Verifiable:
    """A verifiable client in a JVM of its own, which prints a JSON object per event, one a line."""

    def __init__(self, directory: Path, name: str, main: str, *args: str) -> None:
        self._out = directory / f"{name}.jsonl"
        with self._out.open("wb") as out, (directory / f"{name}.err").open("wb") as errors:
            command = kafka_jars.java_command(f"{TOOLS}.{main}", *args)
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)

    def events(self, name: str) -> list[dict[str, Any]]:
        whole = [line for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in map(json.loads, whole) if event["name"] == name]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_dump_tool_reads_our_groups_and_offsets(
    cluster: Cluster, jvm: ProcessClient, topic: str, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every record that the group's life left, and `barnabas log dump` says the same of them."""
    with member(cluster, topic, protocol):
        pass
    admin = confluent_kafka.admin.AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    coordinator = admin.describe_consumer_groups([topic])[topic].result(120).coordinator.id
    partition = partition_for(topic, 50)
    log = cluster.data_directory_of(coordinator) / f"__consumer_offsets-{partition}" / f"{0:020}.log"
    flags = ("--offsets-decoder", "--deep-iteration", "--print-data-log", "--files", str(log))
    theirs = jvm.tool("kafka.tools.DumpLogSegments", *flags)
    assert theirs.code == 0, theirs.text
    assert entry.run(["log", "dump", *flags]) == 0
    assert capsys.readouterr().out == theirs.out
    assert not re.search("isvalid: false|[Ee]xception|UNKNOWN", theirs.text), theirs.text
    keys = [json.loads(found) for found in re.findall(r"key: (\{.*?\}) payload: ", theirs.out)]
    commits = [json.loads(found)["data"] for found in re.findall(r"payload: (\{.*\"offset\".*\})", theirs.out)]
    assert [commit["offset"] for commit in commits] == [RECORDS] * PARTITIONS
    kinds = {key["type"] for key in keys if topic in key["data"].values()}
    assert kinds == ({"1", "2"} if protocol == "classic" else {"1", "3", "5", "6", "7", "8"})


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_clients_while_a_broker_is_killed(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    name = next(_names)
    create_topic(cluster, name, 6)
    common = ("--bootstrap-server", cluster.bootstrap, "--topic", name)
    reading: tuple[str, ...] = (*common, "--group-id", name, "--group-protocol", protocol, "--verbose")
    reading += ("--session-timeout", "6000") if protocol == "classic" else ("--group-remote-assignor", "uniform")
    clients = [Verifiable(tmp_path, f"consumer-{number}", "VerifiableConsumer", *reading) for number in range(2)]
    producer = Verifiable(tmp_path, "producer", "VerifiableProducer", *common, "--acks", "-1", "--throughput", "100")

    def acknowledged() -> int:
        return len(producer.events("producer_send_success"))

    def read() -> dict[tuple[int, int], set[str]]:
        found: dict[tuple[int, int], set[str]] = defaultdict(set)
        for client in clients:
            for event in client.events("record_data"):
                found[event["partition"], event["offset"]].add(event["value"])
        return found

    try:
        wait_until(lambda: all(client.events("partitions_assigned") for client in clients), "both have joined", 120)
        wait_until(lambda: acknowledged() > 200 and len(read()) > 100, "there is a load", 120)
        admin = confluent_kafka.admin.AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
        victim = admin.describe_consumer_groups([name])[name].result(120).coordinator.id
        cluster.kill(victim)
        before = acknowledged()
        wait_until(lambda: acknowledged() > before + 300, "the producer continues", 120)
        cluster.start_broker(victim)
        producer.end()
        sent = {(each["partition"], each["offset"]): each["value"] for each in producer.events("producer_send_success")}
        wait_until(lambda: read().keys() >= sent.keys(), "all is read", 120)
        assert {at: {value} for at, value in sent.items()} == {at: read()[at] for at in sent}
        commits = [event for client in clients for event in client.events("offsets_committed")]
        assert any(event["success"] for event in commits)
        # The tool does not retry, so requests that were in flight at the kill can fail.
        errors = {event["exception"].rpartition(".")[2] for event in producer.events("producer_send_error")}
        assert errors <= {"NetworkException", "NotLeaderOrFollowerException"}
        for client in clients:
            client.end()
            assert client.events("shutdown_complete")
    finally:
        for each in (*clients, producer):
            each.process.kill()
            each.process.wait()
