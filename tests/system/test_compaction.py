"""Compacted topics as clients see them: under load, across restarts and kills, and in Kafka's own tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.clients.drivers import ProcessClient
from tests.clients.servers import Server

NewServer = Callable[..., Server]

WAIT_S = 120.0
KEYS = 200
VALUE_BYTES = 1000


class Writer:
    """An idempotent producer that continues through restarts, and its last acknowledged record of each key."""

    def __init__(self, server: Server, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, bytes | None] = {}
        self.count = 0
        self.failed: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "log_level": 2,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            key = b"key-%d" % (self.count * 7 % KEYS)
            self._send(key, (b"%d " % self.count).ljust(VALUE_BYTES, b"."))

    def delete(self, key: bytes) -> None:
        self._send(key, None)

    def _send(self, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self.topic, value, key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        key = message.key()
        assert isinstance(key, bytes)
        value = message.value()
        assert value is None or isinstance(value, bytes)
        self.acknowledged[key] = value

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0
        assert self.failed == []


def create(server: Server, topic: str, **settings: str) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.1",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1, config=config)])[topic].result(WAIT_S)


def size_of(folder: Path) -> int | None:
    """Returns the size of the log's segments; None while one of them is being replaced."""
    paths = list(folder.glob("*.log"))
    try:
        size = sum(path.stat().st_size for path in paths)
    except FileNotFoundError:
        return None
    return size if paths == list(folder.glob("*.log")) and not any(folder.glob("*.swap")) else None


def wait_until_small(folder: Path, size_bytes: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while (size := size_of(folder)) is None or size > size_bytes:
        assert time.monotonic() < deadline, f"{size} bytes are left in {folder}"
        time.sleep(0.05)


def read_all(server: Server, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Returns (offset, key, value) from the beginning to the end of partition 0."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.partition.eof": True, "log_level": 2}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + WAIT_S
    while True:
        assert time.monotonic() < deadline, f"{len(found)} records and no end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                consumer.close()
                return found
            continue
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert isinstance(key, bytes)
        assert value is None or isinstance(value, bytes)
        found.append((offset, key, value))


@pytest.mark.full
def test_the_last_value_of_each_key_is_read_whatever_happens(own_server: NewServer, java: ProcessClient) -> None:
    server = own_server(log_cleaner_backoff_ms="100", log_segment_delete_delay_ms="1000")
    server.start()
    create(server, "table")
    folder = server.data_dir / "table-0"
    writer = Writer(server, "table")
    for end in (server.kill, server.stop, None):
        writer.write(6000)
        writer.flush()
        wait_until_small(folder, 2_500_000)
        writer.write(3000)  # being cleaned while more comes, and when the process ends
        if end is not None:
            end()
            server.start()
    for number in range(0, KEYS, 10):
        writer.delete(b"key-%d" % number)
    writer.write(1)
    writer.flush()
    wait_until_small(folder, 2_500_000)

    found = read_all(server, "table")
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == writer.count + KEYS // 10 - 1
    assert len(found) < writer.count / 3
    assert {key: value for _, key, value in found} == writer.acknowledged

    server.stop()
    assert list(folder.glob("*.cleaned")) == list(folder.glob("*.swap")) == []
    dumped = java.tool(
        "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, sorted(folder.glob("*.log"))))
    )
    assert dumped.code == 0
    assert dumped.text.count("| offset: ") == len(found)
    assert "isvalid: false" not in dumped.text
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    checked = java.tool("kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", ",".join(map(str, indexes)))
    empty = sum(path.stat().st_size == 0 for path in indexes)
    assert checked.text.count("passed sanity check.") >= len(indexes) - empty
    assert "ismatch" not in checked.text


def test_committed_offsets_are_compacted(own_server: NewServer) -> None:
    server = own_server(
        log_cleaner_backoff_ms="100",
        log_cleaner_min_cleanable_ratio="0.1",
        offsets_topic_num_partitions="1",
        offsets_topic_segment_bytes=str(1 << 20),
    )
    server.start()
    create(server, "read", cleanup_policy="delete")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "log_level": 2})
    folder = server.data_dir / "__consumer_offsets-0"
    consumer.committed([confluent_kafka.TopicPartition("read", 0)], timeout=WAIT_S)  # the coordinator is known then
    for offset in range(1, 801):
        consumer.commit(
            offsets=[confluent_kafka.TopicPartition("read", 0, offset, metadata="m" * 4000)], asynchronous=False
        )
    wait_until_small(folder, 1_200_000)
    server.kill()
    server.start()
    (committed,) = consumer.committed([confluent_kafka.TopicPartition("read", 0)], timeout=WAIT_S)
    assert committed.offset == 800
    consumer.close()
