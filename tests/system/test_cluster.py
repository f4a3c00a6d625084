"""Three brokers that vote together, as processes: what clients see while one of them dies, is paused, or returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.survival import controller_of

from barnabas.testing import Cluster

QUIET = {"log_level": "0"}
#: The patience for short operations: machines can be slow and busy.
WAIT_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        yield cluster


@pytest.fixture
def patient_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Starts a cluster whose sessions are so long that their ends come too late for every test."""
    properties = {"broker.session.timeout.ms": "900000"}
    with Cluster(tmp_path / "cluster", brokers=3, properties=properties) as cluster:
        yield cluster


def admin(cluster: Cluster, *broker_ids: int) -> AdminClient:
    bootstrap = cluster.bootstrap.split(",")
    chosen = [bootstrap[broker_id - 1] for broker_id in broker_ids] or bootstrap
    return AdminClient({**QUIET, "bootstrap.servers": ",".join(chosen)})


def create(
    cluster: Cluster,
    broker_ids: tuple[int, ...],
    name: str,
    partitions: int = 3,
    factor: int = 3,
    timeout_s: float = WAIT_S,
) -> None:
    """Creates a topic. A request whose broker died is repeated by a new client, which does not remember an earlier
    controller.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        client = admin(cluster, *broker_ids)
        (future,) = client.create_topics([NewTopic(name, partitions, factor)], request_timeout=5).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def partitions_of(cluster: Cluster, broker_ids: tuple[int, ...], topic: str) -> Mapping[int, Any]:
    """Returns the partitions as these brokers report them; none without an answer. Each call uses a new client, because
    a client that knows a broker without answers can stay with that one.
    """
    try:
        return admin(cluster, *broker_ids).list_topics(topic, timeout=10).topics[topic].partitions
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise
        return {}


def in_sync(cluster: Cluster, topic: str, *broker_ids: int) -> set[int]:
    """Returns the brokers that are in all of the topic's ISRs."""
    isrs = [set(partition.isrs) for partition in partitions_of(cluster, broker_ids, topic).values()]
    return set.intersection(*isrs) if isrs else set()


def leaders(cluster: Cluster, topic: str, *broker_ids: int) -> set[int]:
    return {partition.leader for partition in partitions_of(cluster, broker_ids, topic).values()}


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Writer:
    """An idempotent producer that waits for all of the ISR, and its acknowledgements."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "delivery.timeout.ms": 120_000,
                "request.timeout.ms": 3_000,
                "socket.timeout.ms": 5_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._topic = topic
        self.acked: dict[tuple[int, int], str] = {}
        self.failed: list[str] = []
        self._sent = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self._topic, f"value {self._sent}", str(self._sent), on_delivery=self._delivered)
            self._sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            value = message.value()
            assert value is not None
            self.acked[message.partition(), message.offset()] = value.decode()  # type: ignore[index]

    def flush(self, timeout_s: float = WAIT_S) -> None:
        assert self._producer.flush(timeout_s) == 0, "not everything was answered"


def read_all(cluster: Cluster, topic: str) -> dict[tuple[int, int], str]:
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=10)[1] for index in partitions
        }
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        found: dict[tuple[int, int], str] = {}
        deadline = time.monotonic() + 120
        while len(found) < sum(ends.values()) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found[message.partition(), message.offset()] = message.value().decode()  # type: ignore[index, union-attr]
        return found
    finally:
        consumer.close()


def check(cluster: Cluster, topic: str, writer: Writer) -> None:
    """Checks that every acknowledged record exists, at its acknowledged offset, and none twice."""
    writer.flush()
    assert not writer.failed
    found = read_all(cluster, topic)
    assert found.items() >= writer.acked.items()
    assert sorted(found.values()) == sorted(writer.acked.values())


def test_every_broker_takes_admin_requests(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        create(cluster, (broker_id,), f"by-{broker_id}", partitions=6)
    for broker_id in (1, 2, 3):
        for name in ("by-1", "by-2", "by-3"):
            told = partial(leaders, cluster, name, broker_id)
            wait_until(lambda told=told: told() == {1, 2, 3}, f"{name} on {broker_id}")  # type: ignore[misc]
            synced = partial(in_sync, cluster, name, broker_id)
            wait_until(lambda synced=synced: synced() == {1, 2, 3}, f"{name} on {broker_id}")  # type: ignore[misc]


@pytest.mark.parametrize("controller", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_killed_broker_costs_no_acked_record(patient_cluster: Cluster, controller: bool) -> None:
    """The end of the broker's session is not waited for: its closed connections report the failure."""
    cluster = patient_cluster
    active = controller_of(cluster)
    victim = active if controller else active % 3 + 1
    survivors = tuple(broker_id for broker_id in (1, 2, 3) if broker_id != victim)
    create(cluster, (1, 2, 3), "orders", partitions=6)
    writer = Writer(cluster, "orders")
    writer.write(300)
    writer.flush()
    cluster.kill(victim)
    create(cluster, survivors, "after", factor=2)
    writer.write(300)
    writer.flush()
    wait_until(lambda: leaders(cluster, "orders", *survivors) == set(survivors), "others lead")
    cluster.start_broker(victim)
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, "it joins the ISRs again")
    check(cluster, "orders", writer)


@pytest.mark.full
def test_a_rolling_restart_under_load(cluster: Cluster) -> None:
    create(cluster, (1, 2, 3), "orders", partitions=6)
    writer = Writer(cluster, "orders")
    for broker_id in (1, 2, 3):
        writer.write(200)
        cluster.stop_broker(broker_id)
        writer.write(200)
        cluster.start_broker(broker_id)
        wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, f"broker {broker_id} joins the ISRs again")
    check(cluster, "orders", writer)


def test_all_killed_and_started_again(cluster: Cluster) -> None:
    create(cluster, (1, 2, 3), "orders", partitions=6)
    writer = Writer(cluster, "orders")
    writer.write(500)
    writer.flush()
    cluster.kill()
    cluster.start()
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, "all are in sync")
    writer.write(100)
    check(cluster, "orders", writer)


@pytest.mark.full
@pytest.mark.parametrize("controller", [True, False])
def test_a_paused_broker_comes_back_deposed(cluster: Cluster, controller: bool) -> None:
    """The session timeout is the default, 9 s: only the broker's silence shows that it is paused."""
    active = controller_of(cluster)
    sleeper = active if controller else active % 3 + 1
    survivors = tuple(broker_id for broker_id in (1, 2, 3) if broker_id != sleeper)
    create(cluster, (1, 2, 3), "orders", partitions=6)
    writer = Writer(cluster, "orders")
    writer.write(200)
    writer.flush()
    cluster.pause(sleeper)
    try:
        writer.write(200)
        wait_until(lambda: leaders(cluster, "orders", *survivors) == set(survivors), "others lead")
        writer.flush()
    finally:
        cluster.resume(sleeper)
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, "it follows again")
    check(cluster, "orders", writer)


def test_two_of_three_down_then_back(cluster: Cluster) -> None:
    client = admin(cluster, 1)
    create(cluster, (1,), "orders", partitions=3)
    cluster.kill(2, 3)
    (future,) = client.create_topics([NewTopic("never", 1, 1)], request_timeout=3).values()
    with pytest.raises(KafkaException):
        future.result()
    cluster.start_broker(2)
    create(cluster, (1, 2), "again", factor=2)
    cluster.start_broker(3)
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, "all are in sync")
