"""Consumer groups with unmodified clients: shared partitions, commits, and members of different libraries in one
group.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from tests.clients.drivers import Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server

import kafka

Names = Callable[[str], str]
Seen = list[tuple[str, int, int]]
#: A member that reads its partitions, records (member, partition, offset), commits, and leaves on request. A commit can
#: fail during a rebalance: then its successor reads these records again.
Member = Callable[[str, str, str, Seen, threading.Event], None]

PARTITIONS = 6
#: A session that no member exceeds here.
SESSION_MS = 60_000
WAIT_S = 120.0


def confluent_member(bootstrap: str, group: str, topic: str, seen: Seen, stop: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 3}
    settings |= {"enable.auto.commit": False, "partition.assignment.strategy": "range", "heartbeat.interval.ms": 500}
    settings |= {"session.timeout.ms": SESSION_MS}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    while not stop.is_set():
        messages = consumer.consume(50, timeout=0.1)
        seen += [("confluent-kafka", each.partition(), each.offset()) for each in messages if each.error() is None]  # type: ignore[misc]
        if messages:
            with suppress(confluent_kafka.KafkaException):
                consumer.commit(asynchronous=False)
    consumer.close()


def kafka_python_member(bootstrap: str, group: str, topic: str, seen: Seen, stop: threading.Event) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=500,
        session_timeout_ms=SESSION_MS,
    )
    # If the metadata arrives while this member assigns partitions, kafka-python takes it for the metadata of the
    # assignment (`_assignment_snapshot`): the topic had no partitions then, and the member never asks for others.
    wait_for(lambda: consumer.partitions_for_topic(topic), lambda: f"{topic} has no partitions")
    consumer.subscribe([topic])
    while not stop.is_set():
        for records in consumer.poll(timeout_ms=100).values():
            seen += [("kafka-python", each.partition, each.offset) for each in records]
            with suppress(kafka.errors.KafkaError):
                consumer.commit()
    consumer.close()


def aiokafka_member(bootstrap: str, group: str, topic: str, seen: Seen, stop: threading.Event) -> None:
    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=SESSION_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        await consumer.start()
        try:
            while not stop.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    seen.extend(("aiokafka", each.partition, each.offset) for each in records)
                    with suppress(aiokafka.errors.KafkaError):
                        await consumer.commit()
        finally:
            await consumer.stop()

    asyncio.run(run())


MEMBERS: dict[str, Member] = {
    "confluent-kafka": confluent_member,
    "kafka-python": kafka_python_member,
    "aiokafka": aiokafka_member,
}


@contextmanager
def running(names: list[str], server: Server, group: str, topic: str, seen: Seen) -> Iterator[None]:
    stop = threading.Event()
    arguments = (server.bootstrap, group, topic, seen, stop)
    threads = [threading.Thread(target=MEMBERS[name], args=arguments) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what()
        pause.wait(0.05)


def fill(server: Server, topic: str, start: int, stop: int) -> set[tuple[int, int]]:
    """Produces one record for every partition and offset from start to stop."""
    wanted = [(partition, offset) for partition in range(PARTITIONS) for offset in range(start, stop)]
    records = [Record(b"%d" % partition, b"%d" % offset, partition=partition) for partition, offset in wanted]
    ConfluentKafka(server.bootstrap).produce(topic, "none", records)
    return set(wanted)


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_reads_everything_and_its_successor_what_is_new(
    server: Server, new_topic_name: Names, name: str
) -> None:
    topic = new_topic_name(f"group-{name}")
    ConfluentKafka(server.bootstrap).create_topic(topic, PARTITIONS)
    wanted = fill(server, topic, 0, 10)
    first: Seen = []
    with running([name], server, topic, topic, first):
        wait_for(lambda: len(first) >= len(wanted), lambda: first)
    assert sorted((partition, offset) for _, partition, offset in first) == sorted(wanted)

    wanted = fill(server, topic, 10, 15)
    second: Seen = []
    with running([name], server, topic, topic, second):
        wait_for(lambda: len(second) >= len(wanted), lambda: second)
    assert sorted((partition, offset) for _, partition, offset in second) == sorted(wanted)


def test_members_of_different_makes_share_a_group(server: Server, new_topic_name: Names) -> None:
    topic = new_topic_name("group-mixed")
    ConfluentKafka(server.bootstrap).create_topic(topic, PARTITIONS)
    seen: Seen = []
    written = 0

    def everyone_reads() -> bool:
        """Writes a round for every partition until the last rounds were shared by all members evenly."""
        nonlocal written
        fill(server, topic, written, written + 1)
        written += 1
        shares: dict[str, set[int]] = {}
        for member, partition, offset in seen:
            if offset >= written - 4:
                shares.setdefault(member, set()).add(partition)
        return sorted(len(each) for each in shares.values()) == [2, 2, 2]

    with running(list(MEMBERS), server, topic, topic, seen):
        wait_for(everyone_reads, lambda: seen[-60:])
        everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(written)}
        wait_for(lambda: {(partition, offset) for _, partition, offset in seen} >= everything, lambda: seen[-60:])
    later: Seen = []
    wanted = fill(server, topic, written, written + 3)
    with running(["confluent-kafka", "kafka-python"], server, topic, topic, later):
        wait_for(lambda: {(p, o) for _, p, o in later} >= wanted, lambda: later[-60:])
    assert {(partition, offset) for _, partition, offset in later} == wanted
