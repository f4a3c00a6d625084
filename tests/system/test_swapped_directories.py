"""A data directory moves from Barnabas to Apache Kafka and back: each starts on what the other left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

import kafka_jars
from clients.drivers import CODECS, Record
from clients.python_clients import ConfluentKafka
from clients.servers import COMMON, BarnabasServer, Server

pytestmark = pytest.mark.full

WAIT_S = 120.0
SETTINGS = {**COMMON, "log.segment.bytes": "1048576"}
T0 = 1_700_000_000_000

MakeServer = Callable[[Path, int], Server]


def barnabas(directory: Path, port: int) -> Server:
    return BarnabasServer(directory, port=port, properties=SETTINGS)


def apache_kafka(directory: Path, port: int) -> Server:
    return kafka_jars.KafkaServer(directory, port=port, properties=SETTINGS)


def written(round_number: int) -> list[Record]:
    return [
        Record(
            f"{round_number}-{n}".encode(), None if n % 7 == 0 else bytes([n % 256]) * 900, (("n", b"%d" % n),), T0 + n
        )
        for n in range(400 * round_number, 400 * round_number + 400)
    ]


def admin_of(server: Server) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})


def consumer_of(server: Server) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "moved", "log_level": 3})


def use(server: Server, round_number: int) -> None:
    """Checks what the earlier rounds wrote, then writes this round's: a topic, records, a config, a commit."""
    client = ConfluentKafka(server.bootstrap, enable_idempotence=True, batch_num_messages=20)
    for earlier in range(round_number):
        topic = f"round-{earlier}"
        # Every earlier topic got one more batch of records in every round since.
        expected = [record for number in range(earlier, round_number) for record in written(number)]
        assert client.consume(topic, 0, len(expected)) == expected
        (by_time,) = client.consume(topic, 0, 1, timestamp=T0 + 400 * earlier + 123)
        assert by_time == written(earlier)[123]
        described = describe_retention(server, topic)
        assert described == str(1_000_000_000 + earlier)
    if round_number:
        where = confluent_kafka.TopicPartition("round-0", 0)
        consumer = consumer_of(server)
        (found,) = consumer.committed([where], timeout=WAIT_S)
        consumer.close()
        assert found.offset == round_number - 1

    new = confluent_kafka.admin.NewTopic(
        f"round-{round_number}", 2, 1, config={"retention.ms": str(1_000_000_000 + round_number)}
    )
    admin = admin_of(server)
    admin.create_topics([new])[new.topic].result(WAIT_S)
    for number in range(round_number + 1):
        offsets = client.produce(f"round-{number}", CODECS[round_number % len(CODECS)], written(round_number))
        assert offsets[0] == 400 * (round_number - number)
    consumer = consumer_of(server)
    consumer.commit(offsets=[confluent_kafka.TopicPartition("round-0", 0, round_number)], asynchronous=False)
    consumer.close()


def describe_retention(server: Server, topic: str) -> str:
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, topic)
    admin = admin_of(server)
    found = admin.describe_configs([resource])[resource].result(WAIT_S)["retention.ms"].value
    assert found is not None
    return found


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("first", [barnabas, apache_kafka])
def test_each_starts_on_what_the_other_left(tmp_path: Path, first: MakeServer, end: str) -> None:
    second = apache_kafka if first is barnabas else barnabas
    (port,) = kafka_jars.free_ports(1)
    for round_number, make in enumerate((first, second, first, second)):
        server = make(tmp_path, port)
        server.start()
        try:
            use(server, round_number)
        finally:
            if end == "stop":
                server.stop()
            server.kill()
        log = server.log_path.read_text(errors="replace")
        assert "ERROR" not in log, log[-3000:]
