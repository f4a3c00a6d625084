"""`barnabas migrate-zookeeper` on clusters that were in use: brokers of ours or of Apache Kafka 3.9.1 in ZooKeeper mode
stop, and brokers of ours or of Apache Kafka 4.1.0 continue in KRaft mode on the same directories. Clients continue
where they were.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.support.apache_nodes import ApacheNode
from tests.support.process_nodes import Address, Node, Nodes, call, until
from tests.support.survival import create_topic, in_sync
from tests.support.zookeeper_mode import SETTINGS, WAIT_S, OurBroker, ZooKeeperModeCluster
from tests.support.zookeeper_process import OurZooKeeper

from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafka39_jars import KafkaBroker
from zookeeper_jars import ApacheZooKeeper

BROKERS = (1, 2, 3)
COMBINED = dict.fromkeys(BROKERS, "broker,controller")
#: The brokers stay what they are, and a new node decides.
APART = {**dict.fromkeys(BROKERS, "broker"), 4: "controller"}
TOPIC = "orders"
#: Resource type and name, a key, and its value; the empty name is that of all brokers.
CONFIGS = [
    (ResourceType.TOPIC, TOPIC, "retention.ms", "86400000"),
    (ResourceType.BROKER, "", "message.max.bytes", "2000000"),
    (ResourceType.BROKER, "1", "log.retention.ms", "172800000"),
]


class Partition(NamedTuple):
    replicas: list[int]
    leader_epoch: int


class Seen(NamedTuple):
    """The cluster as clients see it."""

    topic_id: str
    partitions: dict[int, Partition]
    committed: dict[int, int]
    configs: list[str]


def seen(bootstrap: str, address: Address) -> Seen:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    (topic,) = call(address, request, 12, MetadataResponse).topics
    partitions = {each.partition_index: Partition(each.replica_nodes, each.leader_epoch) for each in topic.partitions}
    reader = consumer(bootstrap)
    found = reader.committed([TopicPartition(TOPIC, number) for number in sorted(partitions)], WAIT_S)
    reader.close()
    return Seen(str(topic.topic_id), partitions, {each.partition: each.offset for each in found}, configs(bootstrap))


def configs(bootstrap: str) -> list[str]:
    """Returns the values in effect; broker 1 stands for all."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = []
    for kind, name, key, _ in CONFIGS:
        (described,) = client.describe_configs([ConfigResource(kind, name or "1")]).values()
        found.append(str(described.result(WAIT_S)[key].value))
    return found


def configure(bootstrap: str, address: Address) -> None:
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind.value,
            resource_name=name,
            configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)],
        )
        for kind, name, key, value in CONFIGS
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    answer = call(address, request, 1, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in answer.responses] == [0] * len(CONFIGS), answer
    until("the settings", lambda: configs(bootstrap) == [row[3] for row in CONFIGS], WAIT_S)


def consumer(bootstrap: str) -> Any:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0, **settings})


def read(bootstrap: str, count: int) -> list[str]:
    """Reads this many values as a member of the group, from where it was, and commits them."""
    reader = consumer(bootstrap)
    reader.subscribe([TOPIC])
    values: list[str] = []

    def enough() -> bool:
        messages = reader.consume(count - len(values), 1.0)
        values.extend((each.value() or b"").decode() for each in messages if each.error() is None)
        return len(values) == count

    until(f"{count} values", enough, WAIT_S)
    reader.commit(asynchronous=False)
    reader.close()
    return values


def write(bootstrap: str, values: list[str]) -> None:
    """Writes the values in one transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "ledger", "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(TOPIC, value.encode(), partition=number % 3)
    producer.commit_transaction(WAIT_S)


def producer_id(addresses: list[Address], transactional_id: str | None) -> tuple[int, int]:
    """Returns a producer id with its epoch, from the first broker that gives one."""

    def given() -> tuple[int, int] | None:
        for address in addresses:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            answer = call(address, request, 4, InitProducerIdResponse, timeout_s=10)
            if answer.error_code == 0:
                return answer.producer_id, answer.producer_epoch
        return None

    return until("a producer id", given, WAIT_S)


@contextmanager
def kraft_cluster(
    folder: Path, kind: type[Node], roles: Mapping[int, str], directories: Mapping[int, Path]
) -> Iterator[Nodes]:
    """Starts nodes of a KRaft cluster on these directories."""
    settings = {key: value for key, value in SETTINGS.items() if not key.startswith("zookeeper.")}
    nodes = Nodes(
        folder / "kraft",
        roles,
        properties={**settings, "offsets.topic.replication.factor": "3", "group.initial.rebalance.delay.ms": "0"},
        makers=dict.fromkeys(roles, kind),
    )
    try:
        for node in nodes.all:
            node.settings["log.dirs"] = str(directories[node.node_id])
            node.launch()
        for node in nodes.all:
            node.wait()
        yield nodes
    finally:
        nodes.close()
        for node in nodes.all:
            print(f"--- node {node.node_id} ({type(node).__name__})\n{node.log[-6000:]}")


def migrate(source: list[str], directory: Path, *flags: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "barnabas.cli.entry", "migrate-zookeeper", *source, "--log-dirs", str(directory)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def migrate_all(source: list[str], directories: Mapping[int, Path]) -> None:
    """Migrates the directory of each node: not with --dry-run, and no second time."""

    def each(*flags: str) -> list[str]:
        return [
            migrate(source, directory, *flags, *(() if node in BROKERS else ("--node-id", str(node))))
            for node, directory in directories.items()
        ]

    before = files_of(directories)
    assert all("Nothing was changed" in told for told in each("--dry-run"))
    assert files_of(directories) == before
    assert all("becomes a directory of KRaft node" in told for told in each())
    after = files_of(directories)
    assert all("already migrated" in told for told in each())
    assert files_of(directories) == after


def files_of(directories: Mapping[int, Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for each in directories.values() for path in each.rglob("*") if path.is_file()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "zookeeper", "after", "roles"),
    [
        pytest.param(OurBroker, OurZooKeeper, Node, COMBINED, id="ours"),
        pytest.param(OurBroker, OurZooKeeper, ApacheNode, APART, id="ours-to-4.1", marks=pytest.mark.full),
        pytest.param(KafkaBroker, ApacheZooKeeper, Node, APART, id="3.9-to-ours", marks=pytest.mark.full),
        pytest.param(KafkaBroker, ApacheZooKeeper, ApacheNode, COMBINED, id="3.9-to-4.1", marks=pytest.mark.full),
    ],
)
def test_clients_go_on_where_they_were(
    tmp_path: Path,
    before: type[KafkaBroker],
    zookeeper: type[OurZooKeeper] | type[ApacheZooKeeper],
    after: type[Node],
    roles: Mapping[int, str],
) -> None:
    values = [f"first-{number}" for number in range(300)]
    cluster = ZooKeeperModeCluster(tmp_path, [before] * 3, zookeeper=zookeeper)
    try:
        create_topic(cluster, TOPIC)
        addresses = [("localhost", broker.port) for broker in cluster.brokers.values()]
        configure(cluster.bootstrap, addresses[0])
        write(cluster.bootstrap, values)
        got = read(cluster.bootstrap, 120)
        first_ids = {producer_id([address], None)[0] for address in addresses}
        ledger = producer_id(addresses, "ledger")
        old = seen(cluster.bootstrap, addresses[0])
        directories = {number: broker.directory / "data" for number, broker in cluster.brokers.items()}
        for number in set(roles) - set(BROKERS):
            directories[number] = tmp_path / f"controller-{number}"
            directories[number].mkdir()
        source = ["--connect", f"127.0.0.1:{cluster.zookeeper.port}/kafka"]
        assert "stop all brokers" in migrate(source, directories[1], code=1)
        for broker in cluster.brokers.values():
            assert broker.stop() in (0, 143)
        if zookeeper is ApacheZooKeeper:
            cluster.zookeeper.kill()
            source = ["--data-dir", str(cluster.zookeeper.data.parent), "--chroot", "/kafka"]
        migrate_all(source, directories)
    finally:
        cluster.close()

    with kraft_cluster(tmp_path, after, roles, directories) as nodes:
        until(f"{TOPIC} is in sync", lambda: in_sync(nodes, TOPIC) == set(BROKERS), WAIT_S)
        new = seen(nodes.bootstrap, nodes[1].address)
        assert new._replace(partitions={}) == old._replace(partitions={})
        for number, partition in new.partitions.items():
            assert partition.replicas == old.partitions[number].replicas
            assert partition.leader_epoch > old.partitions[number].leader_epoch
        addresses = [nodes[number].address for number in BROKERS]
        assert min(producer_id([address], None)[0] for address in addresses) > max(first_ids)
        renewed = producer_id(addresses, "ledger")
        assert renewed[0] == ledger[0]
        assert renewed[1] > ledger[1]
        more = [f"second-{number}" for number in range(30)]
        write(nodes.bootstrap, more)
        got += read(nodes.bootstrap, 210)
        assert sorted(got) == sorted([*values, *more])
        create_topic(nodes, "later")


def become_dynamic(nodes: Nodes) -> None:
    """Raises kraft.version to 1, as `kafka-features upgrade --feature kraft.version=1` does."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)

    def raised() -> bool:
        request = UpdateFeaturesRequest(feature_updates=[update])
        answer = call(nodes[1].address, request, 1, UpdateFeaturesResponse)
        return answer.error_code == 0

    until("kraft.version 1", raised, WAIT_S)


@pytest.mark.full
@pytest.mark.parametrize("kind", [pytest.param(Node, id="ours"), pytest.param(ApacheNode, id="4.1")])
def test_a_migrated_quorum_becomes_a_dynamic_one(tmp_path: Path, kind: type[Node]) -> None:
    """The directories are those of a static quorum, which becomes a dynamic one at run time; afterwards no node's
    configuration names the voters.
    """
    cluster = ZooKeeperModeCluster(tmp_path, [OurBroker] * 3)
    try:
        create_topic(cluster, TOPIC)
        write(cluster.bootstrap, ["first"])
        directories = {number: broker.directory / "data" for number, broker in cluster.brokers.items()}
        for broker in cluster.brokers.values():
            assert broker.stop() in (0, 143)
        source = ["--connect", f"127.0.0.1:{cluster.zookeeper.port}/kafka"]
        for directory in directories.values():
            migrate(source, directory)
    finally:
        cluster.close()

    with kraft_cluster(tmp_path, kind, COMBINED, directories) as nodes:
        become_dynamic(nodes)
        for node in nodes.all:
            node.settings["controller.quorum.bootstrap.servers"] = nodes.bootstrap_controllers
            del node.settings["controller.quorum.voters"]
            node.stop()
            node.launch()
            node.wait()
        until("the voters of the log", lambda: nodes.voters() == list(BROKERS), WAIT_S)
        until(f"{TOPIC} is in sync", lambda: in_sync(nodes, TOPIC) == set(BROKERS), WAIT_S)
        write(nodes.bootstrap, ["second"])
        assert sorted(read(nodes.bootstrap, 2)) == ["first", "second"]
