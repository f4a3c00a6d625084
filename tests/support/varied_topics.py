"""Topics of every kind that a broker without transactions supports, and the records that must be in them.

Changes that happen by themselves (deletion by size and age) are waited for, so that the broker is at rest afterwards.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Sequence

import confluent_kafka
import confluent_kafka.admin
from tests.clients.drivers import CODECS, Record
from tests.clients.python_clients import AioKafka, ConfluentKafka
from tests.clients.servers import Server
from tests.clients.wire import batch, produce, record, wait_until_led
from tests.support import served

from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

WAIT_S = 120.0
T0 = 1_700_000_000_000
#: Broker settings with which background work runs immediately.
SETTINGS = {
    "log.retention.ms": "-1",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "false",
}
TINY = {"internal.segment.bytes": "1000", "index.interval.bytes": "100"}
CONFIGS: dict[str, dict[str, str]] = {
    **{f"codec-{name}": {} for name in CODECS},
    **{f"recompressed-{name}": {"compression.type": name} for name in ("uncompressed", *CODECS[1:])},
    "headers": {},
    "nulls": {},
    "unordered": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "rolled": TINY,
    "rolled-by-time": {"segment.ms": "60000"},
    "rolled-large": {"segment.bytes": "1048576"},
    "trimmed": TINY,
    "trimmed-whole": {},
    "retained": {**TINY, "retention.bytes": "3000"},
    "expired": {**TINY, "retention.ms": "1000"},
    "grown": {},
    "empty": {},
    "configured": {"max.message.bytes": "123456", "flush.messages": "7", "retention.ms": str(10**14)},
    "deleted": TINY,
}
BEFORE_GROWTH, AFTER_GROWTH = 1, 4
TRIMMED_AT = 17
REPLAYED = 8


def admin_of(server: Server) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})


def create(server: Server, name: str, configs: dict[str, str] | None = None, count: int = 1) -> None:
    new = confluent_kafka.admin.NewTopic(name, count, 1, config=configs or {})
    admin = admin_of(server)
    admin.create_topics([new])[name].result(WAIT_S)
    for number in range(count):
        wait_until_led(server.port, name, number)


def alter(server: Server, topic: str, **values: str | None) -> None:
    """Sets topic configurations (their dots written as underscores), or removes them."""
    kinds = confluent_kafka.admin.AlterConfigOpType
    entries = [
        confluent_kafka.admin.ConfigEntry(
            key.replace("_", "."),
            value or "",
            incremental_operation=kinds.DELETE if value is None else kinds.SET,
        )
        for key, value in values.items()
    ]
    kind = confluent_kafka.admin.ResourceType.TOPIC
    resource = confluent_kafka.admin.ConfigResource(kind, topic, incremental_configs=entries)
    admin = admin_of(server)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def numbered(start: int, stop: int, *, size: int = 20, partition: int = 0, step_ms: int = 1000) -> list[Record]:
    """Returns records that compress to a fraction of their size, not to almost nothing."""
    return [
        Record(
            key=f"key-{n % 7}".encode(),
            value=hashlib.sha256(b"%d" % (n // 2)).digest() * (1 + size // 32) + b"%d" % n,
            headers=(("n", b"%d" % n),),
            timestamp=T0 + n * step_ms,
            partition=partition,
        )
        for n in range(start, stop)
    ]


def with_headers() -> list[Record]:
    return [
        Record(b"k", b"v", (("twice", b"1"), ("twice", b"2"), ("", b""), ("nothing", None)), T0),
        Record(b"k", b"v", (("binary", bytes(range(256))), ("größe", "ß".encode())), T0 + 1),
        Record(b"k", b"v", (), T0 + 2),
    ]


def with_nulls() -> list[Record]:
    return [
        Record(key, value, (), T0 + n)
        for n, (key, value) in enumerate((k, v) for k in (None, b"", b"\x00\xff") for v in (None, b"", b"\x00\xff"))
    ]


def write(server: Server) -> dict[str, list[Record]]:
    """Creates and fills all topics. Returns the records that must be in them, without those that are deleted."""
    for name, configs in CONFIGS.items():
        create(server, name, configs)
    client = ConfluentKafka(server.bootstrap, batch_num_messages=7, linger_ms=50)
    expected: dict[str, list[Record]] = {}

    def fill(topic: str, codec: str, records: Sequence[Record]) -> None:
        client.produce(topic, codec, records)
        expected[topic] = [*expected.get(topic, ()), *records]

    for codec in CODECS:
        fill(f"codec-{codec}", codec, numbered(0, 60))
    for codec in ("gzip", "snappy", "lz4"):
        AioKafka(server.bootstrap).produce(f"codec-{codec}", codec, numbered(60, 90))
        expected[f"codec-{codec}"] += numbered(60, 90)
    for codec in ("uncompressed", *CODECS[1:]):
        fill(f"recompressed-{codec}", "none", numbered(0, 20))
        fill(f"recompressed-{codec}", "gzip", numbered(20, 40))
    fill("headers", "none", with_headers())
    fill("nulls", "lz4", with_nulls())
    fill("unordered", "none", [*numbered(40, 60), *numbered(0, 40)])
    client.produce("stamped", "none", numbered(0, 20))
    client.produce("stamped", "zstd", numbered(20, 40))
    fill("rolled", "none", numbered(0, 120))
    fill("rolled-by-time", "none", numbered(0, 60, step_ms=10_000))
    fill("rolled-large", "none", numbered(0, 1500, size=2000))
    fill("configured", "snappy", numbered(0, 5))
    _shrink(server, client, expected)
    _change(server, lambda topic, number: fill(topic, "none", numbered(0, 40, partition=number)))
    del expected["deleted"]
    return expected


def _shrink(server: Server, client: ConfluentKafka, expected: dict[str, list[Record]]) -> None:
    """Advances log start offsets: by request, by size, by age."""
    admin = admin_of(server)
    records = numbered(0, 120)
    for topic in ("trimmed", "trimmed-whole", "retained", "expired"):
        client.produce(topic, "none", records)
    at = [confluent_kafka.TopicPartition("trimmed", 0, TRIMMED_AT)]
    at.append(confluent_kafka.TopicPartition("trimmed-whole", 0, -1))
    for done in admin.delete_records(at).values():
        done.result(WAIT_S)
    expected["trimmed"] = records[TRIMMED_AT:]
    expected["trimmed-whole"] = []
    expected["expired"] = []
    starts = server.data_dir / "log-start-offset-checkpoint"
    served.until(
        "the log start is in its checkpoint",
        lambda: (starts.exists() and f"trimmed 0 {TRIMMED_AT}\n" in starts.read_text()) or None,
    )

    def at_rest() -> bool | None:
        found = served.read(server, [("expired", 0), ("retained", 0)])
        sizes = [each.stat().st_size for each in sorted((server.data_dir / "retained-0").glob("*.log"))]
        # A segment is deleted only while the rest is not below the limit.
        return True if not found["expired", 0] and sum(sizes[1:]) < 3000 else None

    served.until("retention by size and age", at_rest)
    expected["retained"] = records[served.read(server, [("retained", 0)])["retained", 0][0][0] :]
    assert 0 < len(expected["retained"]) < len(records)


def _change(server: Server, fill: Callable[[str, int], None]) -> None:
    """Adds partitions, deletes a topic, and sets and removes configurations."""
    admin = admin_of(server)
    fill("grown", 0)
    more = confluent_kafka.admin.NewPartitions("grown", AFTER_GROWTH)
    admin.create_partitions([more])["grown"].result(WAIT_S)
    for number in range(BEFORE_GROWTH, AFTER_GROWTH):
        wait_until_led(server.port, "grown", number)
        fill("grown", number)
    fill("deleted", 0)
    admin.delete_topics(["deleted"])["deleted"].result(WAIT_S)
    alter(server, "configured", retention_ms=None, cleanup_policy="compact,delete", min_compaction_lag_ms=str(10**14))


def commit(server: Server, group: str, offset: int, metadata: str = "") -> None:
    """Commits in a group whose member then leaves: its offsets in two topics."""
    served.wait_for_coordinator(server.port, group)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 3}
    )
    assigned: list[confluent_kafka.TopicPartition] = []
    consumer.subscribe(["grown"], on_assign=lambda _, found: assigned.extend(found))
    deadline = time.monotonic() + WAIT_S
    while not assigned:
        assert time.monotonic() < deadline, f"{group}: no assignment"
        consumer.poll(0.1)
    wanted = [confluent_kafka.TopicPartition("grown", number, offset + number, metadata) for number in range(4)]
    wanted.append(confluent_kafka.TopicPartition("rolled", 0, offset + 10))
    for done in consumer.commit(offsets=wanted, asynchronous=False) or ():
        assert done.error is None
    consumer.close()


class Replayer:
    """An idempotent producer that can send any batch: the next one, an old one again, one too far ahead."""

    def __init__(self, server: Server, topic: str) -> None:
        create(server, topic)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)

        def made() -> InitProducerIdResponse | None:
            answer = served.call(server.port, request, 4)
            # A broker without ids left requests a block from the controller.
            return None if answer.error_code in served.LOADING else answer

        got = served.until("producer id", made)
        assert got.error_code == 0
        self.topic = topic
        self._producer = (got.producer_id, got.producer_epoch)
        self._sent: list[bytes] = []

    def send(self, server: Server, count: int = REPLAYED) -> None:
        for _ in range(count):
            number = len(self._sent)
            self._sent.append(self._batch(number))
            assert produce(server.port, self.topic, 0, self._sent[-1]) == (0, 2 * number)

    def check(self, server: Server) -> None:
        """Checks that the last batch is known as a duplicate (a snapshot contains only that), and that a gap is
        refused.
        """
        last = len(self._sent) - 1
        error, offset = produce(server.port, self.topic, 0, self._sent[last])
        assert (error, offset) == (0, 2 * last), f"the last batch sent again: error {error}, offset {offset}"
        error, _ = produce(server.port, self.topic, 0, self._batch(len(self._sent) + 1))
        assert error == 45, f"a gap in the sequence: error {error}, not OUT_OF_ORDER_SEQUENCE_NUMBER"

    def _batch(self, number: int) -> bytes:
        records = [record(delta, b"k", struct.pack(">i", 2 * number + delta)) for delta in range(2)]
        # Producers expire by the age of their records.
        stamp = int(time.time() * 1000)
        return batch(records, producer=(*self._producer, 2 * number), timestamp=stamp)


class LongLived:
    """An idempotent librdkafka producer that outlives the brokers it writes to."""

    def __init__(self, server: Server, topic: str) -> None:
        create(server, topic)
        self.topic = topic
        self.written = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, count: int = 10) -> None:
        offsets: list[int | None] = []
        failures: list[str] = []

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failures.append(str(error))

        for number in range(self.written, self.written + count):
            self._producer.produce(self.topic, b"%d" % number, on_delivery=delivered)
        assert self._producer.flush(WAIT_S) == 0
        assert not failures
        assert offsets == list(range(self.written, self.written + count))
        self.written += count
