"""KIP-392 with librdkafka and three broker processes in three racks: a consumer with `client.rack` reads from the
replica in its rack, and continues when that one dies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.survival import known_leader_of

from barnabas.replication.replica_selector import RACK_AWARE
from barnabas.testing import Cluster

QUIET = {"log_level": "0"}
COUNT = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", brokers=3, properties={"replica.selector.class": RACK_AWARE}) as cluster:
        for broker_id in (1, 2, 3):
            cluster.stop_broker(broker_id)
            file = cluster.data_directory_of(broker_id).parent / "server.properties"
            file.write_text(file.read_text() + f"\nbroker.rack=rack-{broker_id}\n")
            cluster.start_broker(broker_id)
        yield cluster


class RackConsumer:
    """A consumer in a rack: the values of `orders`, and the number of fetches that went to each broker."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.values: list[str] = []
        self.fetches: dict[int, int] = {}
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "client.rack": rack,
                "fetch.wait.max.ms": 100,
                "statistics.interval.ms": 200,
                "stats_cb": self._on_statistics,
            }
        )
        self._consumer.subscribe(["orders"])

    def _on_statistics(self, text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] > 0:
                self.fetches[broker["nodeid"]] = broker["req"].get("Fetch", 0)

    def read(self, count: int, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self.values) < count:
            assert time.monotonic() < deadline, f"{len(self.values)} of {count}; fetches {self.fetches}"
            self.poll()

    def linger(self, broker_id: int, fetches: int, timeout_s: float = 120) -> None:
        """Waits until this broker has served this many fetches in all."""
        deadline = time.monotonic() + timeout_s
        while self.fetches.get(broker_id, 0) < fetches:
            assert time.monotonic() < deadline, f"fetches {self.fetches}, and not {fetches} to {broker_id}"
            self.poll()

    def poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            self.values.append(value.decode())

    def close(self) -> None:
        self._consumer.close()


def write(producer: Producer, begin: int, end: int) -> None:
    for number in range(begin, end):
        producer.produce("orders", f"value {number}")
    assert producer.flush(120) == 0


def test_a_consumer_reads_in_its_rack_and_goes_on_when_that_broker_dies(cluster: Cluster) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    (made,) = admin.create_topics([NewTopic("orders", 1, 3)]).values()
    made.result(120)
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, "acks": "all"})
    write(producer, 0, COUNT)
    leader = known_leader_of(cluster, "orders")
    near = leader % 3 + 1
    consumer = RackConsumer(cluster.bootstrap, f"rack-{near}")
    consumer.read(COUNT)
    before = dict(consumer.fetches)
    write(producer, COUNT, 2 * COUNT)
    consumer.read(2 * COUNT)
    consumer.linger(near, before.get(near, 0) + 8)
    more = {broker_id: count - before.get(broker_id, 0) for broker_id, count in consumer.fetches.items()}
    assert more.get(leader, 0) <= 2, f"fetches since: {more}"
    cluster.kill(near)
    write(producer, 2 * COUNT, 3 * COUNT)
    consumer.read(3 * COUNT)
    assert consumer.values == [f"value {number}" for number in range(3 * COUNT)]
    consumer.close()
