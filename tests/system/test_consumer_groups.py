"""Groups of the consumer protocol (KIP-848) with unmodified clients: assignment, leaving, crashes, a mix with classic
members, and the failure of the coordinator.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from tests.clients.drivers import ProcessClient, Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server

Names = Callable[[str], str]

PARTITIONS = 6
WAIT_S = 120.0
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {
    "partition.assignment.strategy": "cooperative-sticky",
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": 60_000,
}


@dataclass
class Log:
    """The records and assignments of all members of a group, in order."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[tuple[str, int, int]] = field(default_factory=list)
    owned: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    faults: list[str] = field(default_factory=list)

    def gained(self, name: str, partitions: set[int]) -> None:
        with self.lock:
            for other, owned in self.owned.items():
                if other != name and owned & partitions:
                    self.faults.append(f"{name} was given {sorted(owned & partitions)} that {other} had")
            self.owned[name] |= partitions

    def lost(self, name: str, partitions: set[int]) -> None:
        with self.lock:
            self.owned[name] -= partitions

    def shares(self) -> list[int]:
        with self.lock:
            return sorted(len(owned) for owned in self.owned.values())


class Member:
    """A librdkafka consumer in a thread of its own, until the test ends or crashes it."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], name: str, log: Log, **more: Any) -> None:
        self.name = name
        self._log = log
        self._stop = threading.Event()
        self._crash = threading.Event()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 2,
            **more,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._log.gained(self.name, {each.partition for each in partitions})
        consumer.incremental_assign(partitions)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._log.lost(self.name, {each.partition for each in partitions})
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._log.lost(self.name, {each.partition for each in partitions})
        consumer.incremental_unassign(partitions)

    def _run(self) -> None:
        while not self._stop.is_set():
            messages: list[Any] = [each for each in self._consumer.consume(50, timeout=0.1) if each.error() is None]
            with self._log.lock:
                self._log.seen += [(self.name, each.partition(), each.offset()) for each in messages]
            if messages:
                # The member's epoch can be newer meanwhile: its records are then read again.
                with suppress(confluent_kafka.KafkaException):
                    self._consumer.commit(asynchronous=False)
        if not self._crash.is_set():
            self._consumer.close()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)


@contextmanager
def members(
    server: Server, group: str, topics: list[str], log: Log, settings: list[dict[str, Any]]
) -> Iterator[list[Member]]:
    made = [Member(server.bootstrap, group, topics, f"m{index}", log, **each) for index, each in enumerate(settings)]
    try:
        yield made
    finally:
        for member in made:
            member.leave()


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what()
        pause.wait(0.1)


def fill(server: Server, topic: str, start: int, stop: int) -> set[tuple[int, int]]:
    wanted = [(partition, offset) for partition in range(PARTITIONS) for offset in range(start, stop)]
    records = [Record(b"%d" % partition, b"%d" % offset, partition=partition) for partition, offset in wanted]
    ConfluentKafka(server.bootstrap).produce(topic, "none", records)
    return set(wanted)


def committed(server: Server, group: str, topic: str) -> list[int]:
    client = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, "log_level": 2})
    requested = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = [each.offset for each in client.committed(requested, timeout=WAIT_S)]
    client.close()
    return found


@pytest.mark.full
def test_members_of_the_consumer_protocol_share_a_topic(server: Server, new_topic_name: Names) -> None:
    """There are one, two, three members, then one leaves: no partition has two owners, and everything is read."""
    topic = new_topic_name("kip848")
    ConfluentKafka(server.bootstrap).create_topic(topic, PARTITIONS)
    log = Log()
    wanted = fill(server, topic, 0, 5)
    with members(server, topic, [topic], log, [CONSUMER]) as made:
        wait_for(lambda: log.shares() == [6], lambda: log.owned)
        made.append(Member(server.bootstrap, topic, [topic], "second", log, **CONSUMER))
        wait_for(lambda: log.shares() == [3, 3], lambda: log.owned)
        made.append(Member(server.bootstrap, topic, [topic], "third", log, **CONSUMER))
        wait_for(lambda: log.shares() == [2, 2, 2], lambda: log.owned)
        made.pop(0).leave()
        wait_for(lambda: log.shares() == [0, 3, 3], lambda: log.owned)
        wanted |= fill(server, topic, 5, 10)
        wait_for(lambda: {(p, o) for _, p, o in log.seen} >= wanted, lambda: log.seen[-20:])
        described = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        group = described.describe_consumer_groups([topic])[topic].result()
        assert group.state.name == "STABLE"
        assert group.type.name == "CONSUMER"
        assert sorted(len(each.assignment.topic_partitions) for each in group.members) == [3, 3]
    assert log.faults == []
    assert committed(server, topic, topic) == [10] * PARTITIONS


def test_a_running_classic_group_moves_to_the_consumer_protocol_and_back(server: Server, new_topic_name: Names) -> None:
    """Members of both protocols share the topic; one of the new kind comes, the old one goes, and the way back."""
    topic = new_topic_name("kip848-mixed")
    ConfluentKafka(server.bootstrap).create_topic(topic, PARTITIONS)
    log = Log()
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})

    def kind() -> str:
        return str(admin.describe_consumer_groups([topic])[topic].result().type.name)

    wanted = fill(server, topic, 0, 5)
    with members(server, topic, [topic], log, [CLASSIC]) as made:
        wait_for(lambda: log.shares() == [6], lambda: log.owned)
        assert kind() == "CLASSIC"
        made.append(Member(server.bootstrap, topic, [topic], "new", log, **CONSUMER))
        wait_for(lambda: log.shares() == [3, 3], lambda: log.owned)
        assert kind() == "CONSUMER"
        wanted |= fill(server, topic, 5, 8)
        wait_for(lambda: {(p, o) for _, p, o in log.seen} >= wanted, lambda: log.seen[-20:])
        made.pop(1).leave()
        wait_for(lambda: log.shares() == [0, 6] and kind() == "CLASSIC", lambda: log.owned)
        wanted |= fill(server, topic, 8, 10)
        wait_for(lambda: {(p, o) for _, p, o in log.seen} >= wanted, lambda: log.seen[-20:])
    assert log.faults == []
    assert committed(server, topic, topic) == [10] * PARTITIONS


@pytest.mark.full
def test_a_subscription_by_expression_follows_the_topics(server: Server, new_topic_name: Names) -> None:
    first, second = new_topic_name("kip848-regex-a"), new_topic_name("kip848-regex-b")
    prefix = first[: first.index("kip848-regex-") + len("kip848-regex-")]
    ConfluentKafka(server.bootstrap).create_topic(first, PARTITIONS)
    log = Log()
    with members(server, first, [f"^{prefix}.*"], log, [CONSUMER]):
        wait_for(lambda: log.shares() == [6], lambda: log.owned)
        wanted = fill(server, first, 0, 2)
        wait_for(lambda: {(p, o) for _, p, o in log.seen} >= wanted, lambda: log.seen)
        before = len(log.seen)
        ConfluentKafka(server.bootstrap).create_topic(second, PARTITIONS)
        fill(server, second, 0, 2)
        wait_for(lambda: len(log.seen) >= before + 2 * PARTITIONS, lambda: log.seen)


def test_kafkas_tool_shows_a_consumer_group(server: Server, new_topic_name: Names, java: ProcessClient) -> None:
    topic = new_topic_name("kip848-tool")
    ConfluentKafka(server.bootstrap).create_topic(topic, PARTITIONS)
    log = Log()
    wanted = fill(server, topic, 0, 3)

    def tool(*args: str) -> str:
        found = java.tool(TOOL, "--bootstrap-server", server.bootstrap, *args)
        assert found.code == 0, found
        return found.out

    with members(server, topic, [topic], log, [CONSUMER, CONSUMER]):
        wait_for(lambda: log.shares() == [3, 3], lambda: log.owned)
        wait_for(lambda: {(p, o) for _, p, o in log.seen} >= wanted, lambda: log.seen)
        wait_for(lambda: committed(server, topic, topic) == [3] * PARTITIONS, lambda: log.seen)
        state = tool("--describe", "--group", topic, "--state", "--verbose")
        assert " Stable " in state
        assert " uniform " in state
        shown = tool("--describe", "--group", topic, "--members", "--verbose")
        assert shown.count("0,1,2") + shown.count("3,4,5") >= 2, shown
        offsets = tool("--describe", "--group", topic, "--offsets")
        rows = sorted(line.split()[:6] for line in offsets.splitlines() if line.split()[1:2] == [topic])
        assert rows == [[topic, topic, str(index), "3", "3", "0"] for index in range(PARTITIONS)], offsets
        listed = tool("--list", "--type", "consumer")
        assert topic in listed.split()
    assert "was successful" in tool("--delete", "--group", topic)
    assert topic not in tool("--list").split()
