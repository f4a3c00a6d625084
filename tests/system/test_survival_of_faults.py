"""The longer list of faults under load on three brokers, each judged by the history of all clients (test_survival.py).

There are also the answers with too few replicas in sync, and the changes of a topic meanwhile.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.clients import programs
from tests.support.survival import (
    Load,
    admin,
    controller_of,
    create_topic,
    in_sync,
    known_leader_of,
    partitions_of,
    wait_until,
)

from barnabas.cli.raw_requests import Wire
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.testing import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        yield cluster


def all_in_sync(cluster: Cluster, topic: str = "orders") -> None:
    wait_until(lambda: in_sync(cluster, topic) == {1, 2, 3}, f"all replicas of {topic} are in sync")


@pytest.mark.full
@pytest.mark.parametrize("times", [1, 3])
def test_a_follower_is_killed(cluster: Cluster, tmp_path: Path, times: int) -> None:
    create_topic(cluster, "orders", partitions=1)
    with Load(cluster, tmp_path, {"orders": 1}) as load:
        for _ in range(times):
            leader = known_leader_of(cluster, "orders")
            victim = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
            cluster.kill(victim)
            load.go_on()
            cluster.start_broker(victim)
            all_in_sync(cluster)
            load.go_on()
    load.judge()


@pytest.mark.full
def test_the_controller_and_the_leader_are_killed_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """Two of three: nothing can be acknowledged before one of them is back, and nothing is lost."""
    create_topic(cluster, "orders", partitions=6)
    with Load(cluster, tmp_path, {"orders": 6}) as load:
        controller = controller_of(cluster)
        leaders = {known_leader_of(cluster, "orders", partition) for partition in range(6)}
        leader = next(iter(leaders - {controller}))
        cluster.kill(controller, leader)
        time.sleep(1)
        cluster.start_broker(controller)
        load.go_on()
        cluster.start_broker(leader)
        all_in_sync(cluster)
        load.go_on()
    load.judge()


@pytest.mark.full
def test_all_are_killed_and_started_again(cluster: Cluster, tmp_path: Path) -> None:
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}, aio=True) as load:
        for _ in range(2):
            cluster.kill()
            cluster.start()
            load.go_on()
            all_in_sync(cluster)
    load.judge()


@pytest.mark.full
def test_the_java_client_survives_kills_and_orderly_stops(cluster: Cluster, tmp_path: Path) -> None:
    create_topic(cluster, "orders", partitions=1)
    java = programs.java(cluster.bootstrap)
    try:
        with Load(cluster, tmp_path, {"orders": 1}, producers=1, java=java) as load:
            for end in (cluster.kill, cluster.stop_broker):
                java_process_writes(load)
                leader = known_leader_of(cluster, "orders")
                end(leader)
                java_process_writes(load)
                cluster.start_broker(leader)
                all_in_sync(cluster)
    finally:
        java.close()
    load.judge()


def java_process_writes(load: Load) -> None:
    count = load.acked_by("java")
    wait_until(lambda: load.acked_by("java") >= count + 40, "the Java client's records are acknowledged")


@pytest.mark.full
def test_a_disk_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    """G9: what comes back empty, under a new directory id, follows; it leads again only when it has everything."""
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        victim = known_leader_of(cluster, "orders")
        directory = cluster.data_directory_of(victim)
        before = directory_id(directory)
        cluster.kill(victim)
        load.go_on()
        shutil.rmtree(directory)
        cluster.start_broker(victim)
        assert directory_id(directory) != before
        found = partitions_of(cluster, "orders").values()
        assert all(victim in partition.isrs or partition.leader != victim for partition in found)
        all_in_sync(cluster)
        other = next(broker_id for broker_id in (1, 2, 3) if broker_id != victim)
        cluster.kill(other)
        load.go_on()
        cluster.start_broker(other)
        all_in_sync(cluster)
    load.judge()


def directory_id(directory: Path) -> str:
    lines = (directory / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("directory.id="))


@pytest.mark.full
def test_min_insync_replicas_change_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """Writers wait with 3 of 3 required and one broker down; they continue when 2 are enough."""
    create_topic(cluster, "orders", min_insync_replicas="1")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        set_config(cluster, "orders", "min.insync.replicas", "3")
        load.go_on()
        cluster.kill(3)
        wait_until(lambda: in_sync(cluster, "orders") == {1, 2}, "broker 3 is out of the ISRs")
        # Records that two replicas had before the change have been answered by now.
        time.sleep(5)
        count = len(load.acked_at)
        time.sleep(1)
        assert len(load.acked_at) == count, "acknowledged by two, and three are needed"
        set_config(cluster, "orders", "min.insync.replicas", "2")
        load.go_on()
        cluster.start_broker(3)
        all_in_sync(cluster)
    load.judge()


@pytest.mark.full
def test_partitions_are_added_under_load(cluster: Cluster, tmp_path: Path) -> None:
    create_topic(cluster, "orders", partitions=2)
    with Load(cluster, tmp_path, {"orders": 2}) as load:
        client = admin(cluster)
        (future,) = client.create_partitions([NewPartitions("orders", 6)]).values()
        future.result(120)
        wait_until(lambda: len(partitions_of(cluster, "orders")) == 6, "there are six partitions")
        time.sleep(1)
        load.topics["orders"] = 6
        load.go_on(300)
        victim = known_leader_of(cluster, "orders", 5)
        cluster.kill(victim)
        load.go_on()
        cluster.start_broker(victim)
        all_in_sync(cluster)
    load.judge()


@pytest.mark.full
def test_a_topic_is_deleted_and_created_again_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """G14: no record of the old one is in the new one, whatever was under way."""
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        for _ in range(3):
            client = admin(cluster)
            load.history.note("admin", "invoke", "delete_topic", topic="orders")
            (future,) = client.delete_topics(["orders"]).values()
            future.result(120)
            load.history.note("admin", "ok", "delete_topic", topic="orders")
            create_topic(cluster, "orders")
            load.history.note("admin", "ok", "create_topic", topic="orders")
            load.go_on(300)
    load.judge(errors_allowed=True)


def set_config(cluster: Cluster, topic: str, key: str, value: str) -> None:
    client = admin(cluster)
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(120)


def test_too_few_replicas_refuse_a_write_or_do_not_acknowledge_it(tmp_path: Path) -> None:
    """A check with too few replicas before the append refuses the write: NOT_ENOUGH_REPLICAS, and nothing is written.
    After the append the HW waits for enough replicas (KIP-966), so the writer gets REQUEST_TIMED_OUT, as from Kafka
    4.1, and the record can stay.
    """
    properties = {"replica.lag.time.max.ms": "3000"}
    with Cluster(tmp_path / "cluster", brokers=3, properties=properties) as cluster:
        create_topic(cluster, "orders", partitions=1, min_insync_replicas="3")
        leader = known_leader_of(cluster, "orders")
        sleeper, victim = (broker_id for broker_id in (1, 2, 3) if broker_id != leader)
        view = Broker(cluster.bootstrap.split(",")[leader - 1])
        host, _, port = view.bootstrap.rpartition(":")
        with Wire(host, int(port)) as wire:
            assert produced_at_last(wire) == (ErrorCode.NONE, 0)
            cluster.pause(sleeper)
            try:
                # The answer is the same when the paused broker is out of the ISR.
                assert produced(wire, timeout_ms=7_000)[0] == ErrorCode.REQUEST_TIMED_OUT
                wait_until(lambda: len(partitions_of(view, "orders")[0].isrs) == 2, "it is out of the ISR")
                assert produced(wire)[0] == ErrorCode.NOT_ENOUGH_REPLICAS
            finally:
                cluster.resume(sleeper)
            wait_until(lambda: in_sync(view, "orders") == {1, 2, 3}, "the leader knows that all are in sync")
            assert produced_at_last(wire) == (ErrorCode.NONE, 2), "the second one was written, the third one was not"
            cluster.kill(victim)
            wait_until(lambda: victim not in in_sync(view, "orders"), "it is out of the ISR")
            assert produced(wire)[0] == ErrorCode.NOT_ENOUGH_REPLICAS


class Broker(NamedTuple):
    """The cluster as one of its brokers reports it."""

    bootstrap: str


NOTHING_WRITTEN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


def produced_at_last(wire: Wire) -> tuple[ErrorCode, int]:
    """Produces as `produced`, and repeats it when nothing was written: the broker can be without the metadata of a new
    topic, or a follower can be late for a moment.
    """
    deadline = time.monotonic() + 120
    while True:
        found = produced(wire)
        if found[0] not in NOTHING_WRITTEN or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def produced(wire: Wire, timeout_ms: int = 20_000) -> tuple[ErrorCode, int]:
    """Produces one record with acks=all, and returns the error and the offset."""
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"value", [])])
    partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic]), 9, ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    return ErrorCode(row.error_code), row.base_offset
