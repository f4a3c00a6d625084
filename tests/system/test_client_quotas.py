"""Byte quotas as clients of others experience them: Kafka's performance tools and librdkafka, each at its quota."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from tests.clients import programs
from tests.clients.servers import BarnabasServer

QUOTA_BYTES = 400_000
RECORD_BYTES = 1_000
#: The windows of this broker: a rate is exact only after they have passed once.
WINDOWS_S = 3
TOOLS = "org.apache.kafka.tools"
TOPIC = "limited"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    made = BarnabasServer(
        tmp_path_factory.mktemp("quotas"), properties={"quota.window.num": str(WINDOWS_S), "num.partitions": "1"}
    )
    made.start()
    yield made
    made.stop()


def set_quota(server: BarnabasServer, client_id: str, quota: str) -> None:
    arguments = ("--entity-type", "clients", "--entity-name", client_id, "--alter", "--add-config", quota)
    done = programs.java(server.bootstrap).tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap, *arguments
    )
    assert done.code == 0, done.text


def sent_bytes_per_second(server: BarnabasServer, client_id: str, producers: int, seconds: float) -> tuple[float, int]:
    """Returns the rate of acknowledged bytes after the first windows, and the number of throttled answers.

    The windows let clients send most of a quota in the first of their seconds, so the bytes are a staircase: its slope
    is the rate, whatever part of a step the measurement begins and ends with.
    """
    throttled: list[float] = []
    acknowledged = 0

    def delivered(error: object, message: object) -> None:
        nonlocal acknowledged
        acknowledged += RECORD_BYTES if error is None else 0

    made = [
        Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "batch.size": 16_000,
                "message.timeout.ms": 120_000,
                "throttle_cb": lambda event: throttled.append(event.throttle_time),
                "log_level": 3,
            }
        )
        for _ in range(producers)
    ]
    begin = time.monotonic()
    measured: list[tuple[float, int]] = []
    while (now := time.monotonic()) - begin < WINDOWS_S + seconds:
        for producer in made:
            while len(producer) < 64:
                producer.produce(TOPIC, bytes(RECORD_BYTES), on_delivery=delivered)
            producer.poll(0)
        if now - begin >= WINDOWS_S:
            measured.append((now, acknowledged))
        time.sleep(0.005)
    rate = statistics.linear_regression(*zip(*measured, strict=True)).slope
    for producer in made:
        producer.purge()
        producer.flush(10)
    made.clear()
    return rate, len(throttled)


@pytest.mark.full
def test_eight_producers_of_librdkafka_share_the_rate_of_their_client_id(server: BarnabasServer) -> None:
    # As with Apache Kafka, each of the eight can send one request above the rate: 128 kB in three windows.
    quota = 3 * QUOTA_BYTES
    set_quota(server, "eight", f"producer_byte_rate={quota}")
    rate, throttled = sent_bytes_per_second(server, "eight", 8, 15.0)
    assert throttled > 0
    assert quota * 0.9 < rate < quota * 1.1, rate


@pytest.mark.full
def test_the_performance_tool_of_kafka_produces_at_its_quota(server: BarnabasServer) -> None:
    set_quota(server, "perf-producer", f"producer_byte_rate={QUOTA_BYTES}")
    java = programs.java(server.bootstrap)
    count = 8_000
    produced = java.tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={server.bootstrap}", "client.id=perf-producer", "batch.size=16000"),
    )
    assert produced.code == 0, produced.text
    rate = float(produced.out.strip().splitlines()[-1].split(" records/sec")[0].split()[-1]) * RECORD_BYTES
    # The first windows are not limited as a whole: they can hold one quota more than their time.
    assert QUOTA_BYTES * 0.9 < rate < QUOTA_BYTES * 1.1 * (1 + WINDOWS_S / (count * RECORD_BYTES / QUOTA_BYTES)), rate


@pytest.mark.full
def test_a_consumer_of_librdkafka_reads_at_its_quota(server: BarnabasServer) -> None:
    set_quota(server, "reader", f"consumer_byte_rate={QUOTA_BYTES}")
    filler = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "batch.size": 16_000})
    for _ in range(12_000):
        filler.produce("read", bytes(RECORD_BYTES))
        filler.poll(0)
    filler.flush(60)
    throttled: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": "reader",
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 50_000,
            "queued.max.messages.kbytes": 1_000,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    consumer.subscribe(["read"])
    begin, measured_from, count = 0.0, 0.0, 0
    while not measured_from or time.monotonic() - measured_from < 12:
        for message in consumer.consume(500, 0.05):
            assert message.error() is None
            begin = begin or time.monotonic()
            count += bool(measured_from)
        if begin and not measured_from and time.monotonic() - begin >= WINDOWS_S:
            measured_from = time.monotonic()
    rate = count * RECORD_BYTES / (time.monotonic() - measured_from)
    consumer.close()
    assert throttled
    # A busy machine delays fetches, and what a delayed one has missed is not made up for within the windows.
    assert QUOTA_BYTES * 0.8 < rate < QUOTA_BYTES * 1.1, rate
