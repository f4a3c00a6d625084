"""Topics moved between two directories of a real process while they are written and read, with kill -9 in the middle.

kafka-python's admin client requests the moves. With BARNABAS_TARGET=kafka the same runs against Apache Kafka, except
for the checks after kill -9: a single Kafka broker can lose the last records of a move.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka.admin
import kafka.errors
import pytest
from tests.clients.servers import Server

import kafka

NewServer = Callable[..., Server]

PARTITIONS = 3
WAIT_S = 120.0
SEND_PER_S = 2000


@pytest.fixture
def directories(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "one"), str(tmp_path / "two")


@contextmanager
def admin_of(server: Server) -> Iterator[Any]:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def move(server: Server, topic: str, target: str) -> None:
    with admin_of(server) as admin:
        targets = {(topic, partition, 1): target for partition in range(PARTITIONS)}
        answers = admin.alter_replica_log_dirs(targets)
        assert [error.errno for error in answers.values()] == [0] * PARTITIONS, answers


def described(admin: Any, topic: str) -> dict[str, dict[int, tuple[int, bool]]]:
    """Returns (lag, is future) by directory and partition."""
    (broker,) = admin.describe_log_dirs([topic])
    return {
        each["log_dir"]: {
            row["partition_index"]: (row["offset_lag"], row["is_future_key"])
            for found in each["topics"]
            for row in found["partitions"]
        }
        for each in broker["log_dirs"]
    }


def wait_until_moved(server: Server, topic: str, target: str) -> None:
    deadline = time.monotonic() + WAIT_S
    with admin_of(server) as admin:
        while True:
            there = described(admin, topic)
            if set(there[target]) == set(range(PARTITIONS)) and not any(f for _, f in there[target].values()):
                return
            assert time.monotonic() < deadline, there
            time.sleep(0.05)


class Producer(threading.Thread):
    """Idempotent, acks=all; `acked[partition]` are the numbers whose delivery was confirmed, in that order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.acked: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self._topic = topic
        self._ending = threading.Event()
        self._client = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 3,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": 120_000,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            for _ in range(SEND_PER_S // 100):
                self._client.produce(
                    self._topic, b"%d" % number + b"." * 500, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            self._client.poll(0)
            time.sleep(0.01)
        assert self._client.flush(WAIT_S) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[message.partition()].append(int(message.value().split(b".")[0]))

    def wait_for_some(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while sum(map(len, self.acked.values())) < SEND_PER_S:
            assert time.monotonic() < deadline, "nothing is acknowledged"
            time.sleep(0.05)

    def end(self) -> None:
        self._ending.set()
        self.join()


class Consumer(threading.Thread):
    """Reads on through moves and kills; `seen[partition]` is (offset, number) in the order of arrival."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
        self._ending = threading.Event()
        self._client = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reads-on",
                "auto.offset.reset": "error",
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        begin = confluent_kafka.OFFSET_BEGINNING
        self._client.assign([confluent_kafka.TopicPartition(topic, each, begin) for each in range(PARTITIONS)])

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._client.consume(500, timeout=0.1):
                if message.error() is None:
                    partition, offset, value = message.partition(), message.offset(), message.value()
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    self.seen[partition].append((offset, int(value.split(b".")[0])))

    def wait_for(self, acked: dict[int, list[int]]) -> None:
        deadline = time.monotonic() + WAIT_S
        while any(len(self.seen[partition]) < len(numbers) for partition, numbers in acked.items()):
            assert time.monotonic() < deadline, "the consumer does not come to the end"
            time.sleep(0.05)
        self._ending.set()
        self.join()
        self._client.close()


def create(server: Server, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    config = {"segment.bytes": str(1 << 20)}
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(WAIT_S)


@pytest.mark.parametrize("kills", [pytest.param(0, marks=pytest.mark.full), 3])
def test_to_and_fro_under_load(own_server: NewServer, directories: tuple[str, str], kills: int) -> None:
    server = own_server(log_dirs=",".join(directories))
    server.start()
    create(server, "moved")
    producer, consumer = Producer(server.bootstrap, "moved"), Consumer(server.bootstrap, "moved")
    producer.start()
    consumer.start()
    producer.wait_for_some()
    for turn in range(4):
        target = directories[(turn + 1) % 2]
        move(server, "moved", target)
        if turn < kills:
            time.sleep(0.01 * (1 + turn * 4))
            server.kill()
            server.start()
        wait_until_moved(server, "moved", target)
    producer.end()
    consumer.wait_for(producer.acked)
    server.stop()

    assert producer.failed == []
    for partition in range(PARTITIONS):
        numbers = [number for _, number in consumer.seen[partition]]
        assert numbers == producer.acked[partition], f"every record, once and in order, in partition {partition}"
        assert [offset for offset, _ in consumer.seen[partition]] == list(range(len(numbers)))
    for directory, expected in zip(directories, (PARTITIONS, 0), strict=True):
        live = [path for path in Path(directory).glob("moved-*") if not path.name.endswith("-delete")]
        assert len(live) == expected


def test_refusals_and_moves_requested_in_advance(own_server: NewServer, directories: tuple[str, str]) -> None:
    server = own_server(log_dirs=",".join(directories))
    server.start()
    with admin_of(server) as admin:
        (answer,) = admin.alter_replica_log_dirs({("wished", 0, 1): directories[1]}).values()
        assert answer is kafka.errors.UnknownTopicOrPartitionError
        (answer,) = admin.alter_replica_log_dirs({("wished", 0, 1): "/nowhere"}).values()
        assert answer is kafka.errors.LogDirNotFoundError
    create(server, "wished")
    with admin_of(server) as admin:
        deadline = time.monotonic() + WAIT_S
        while 0 not in described(admin, "wished")[directories[1]]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
