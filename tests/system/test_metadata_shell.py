"""Kafka's metadata shell reads Barnabas's metadata log and snapshots, with the same content."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from tests.support.metadata_logs import batches
from tests.support.process_nodes import call
from tests.support.survival import QUIET, admin, create_topic, in_sync, wait_until

import kafka_jars
from barnabas.common.types import METADATA_TOPIC, uuid_to_text
from barnabas.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataLoader
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.raft.snapshots import decode_snapshot, parse_name
from barnabas.testing import Cluster

pytestmark = pytest.mark.full
Tree = dict[str, Any]
RECOVERY_STATES = ("RECOVERED", "RECOVERING")


def shell(file: Path, folder: Path) -> Tree:
    """Returns all that `tree image` shows of this file, read outside the directory that a broker can have locked."""
    folder.mkdir()
    copy = shutil.copy(file, folder)
    done = kafka_jars.run_tool("org.apache.kafka.shell.MetadataShell", "--snapshot", str(copy), "tree", "image")
    # The shell reports control records, which it ignores.
    complaints = [line for line in done.stderr.splitlines() if "Ignoring control record with type" not in line]
    assert (done.returncode, complaints) == (0, [])
    return nested([(len(line) - len(line.lstrip()), line.strip()) for line in done.stdout.splitlines()])


def nested(lines: list[tuple[int, str]]) -> Tree:
    """Returns the lines as a tree: a line with a larger indent belongs to the line before it, and a leaf has one line
    of text below its name.
    """
    root: Tree = {}
    path: list[tuple[int, Tree]] = [(-1, root)]
    for at, (depth, text) in enumerate(lines):
        while path[-1][0] >= depth:
            path.pop()
        parent = path[-1][1]
        if text.endswith(":"):
            parent[text[:-1]] = {}
            path.append((depth, parent[text[:-1]]))
        else:
            assert not parent, f"line {at}: text beside other nodes"
            parent[""] = text
    return {name: flattened(node) for name, node in root.items()}


def flattened(node: Tree) -> Any:
    if set(node) == {""}:
        return node[""]
    return {name: flattened(child) for name, child in node.items()}


# -- the expected output of the shell


def ids(values: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, values))}]"


def partition_text(partition: PartitionImage) -> str:
    directories = ", ".join(map(uuid_to_text, partition.directories))
    return (
        f"PartitionRegistration(replicas={ids(partition.replicas)}, directories=[{directories}],"
        f" isr={ids(partition.isr)}, removingReplicas={ids(partition.removing_replicas)},"
        f" addingReplicas={ids(partition.adding_replicas)}, elr={ids(partition.elr)},"
        f" lastKnownElr={ids(partition.last_known_elr)}, leader={partition.leader},"
        f" leaderRecoveryState={RECOVERY_STATES[partition.leader_recovery_state]},"
        f" leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def expected(image: MetadataImage) -> Tree:
    by_name = {
        topic.name: {
            "name": topic.name,
            "id": uuid_to_text(topic.topic_id),
            **{str(index): partition_text(each) for index, each in enumerate(topic.partitions)},
        }
        for topic in image.topics()
    }
    kinds = {TOPIC_RESOURCE: "TOPIC", BROKER_RESOURCE: "BROKER"}
    levels = {name: str(level) for name, level in image.features.items()}
    assert levels.pop("metadata.version") == "27"
    return {
        "topics": {"byName": by_name, "byId": {topic["id"]: topic for topic in by_name.values()}},
        "configs": {
            f"{kinds[kind]}:{name}" if name else kinds[kind]: dict(overrides)
            for (kind, name), overrides in image.configs.items()
        },
        "features": {
            "metadataVersion": "Optional[4.1-IV1]",
            "zkMigrationState": {},
            **{f"finalized_{name}": level for name, level in levels.items()},
        },
        "producerIds": {"nextProducerId": str(image.next_producer_id)},
    }


def assert_same(tree: Tree, image: MetadataImage) -> None:
    for name, part in expected(image).items():
        assert tree[name] == part
    assert set(tree["cluster"]["brokers"]) == set(map(str, image.brokers))
    for broker_id, broker in image.brokers.items():
        text = tree["cluster"]["brokers"][str(broker_id)]
        directories = ", ".join(map(uuid_to_text, broker.directories))
        for part in (
            f"epoch={broker.epoch}, incarnationId={uuid_to_text(broker.incarnation_id)}",
            f"fenced={str(broker.fenced).lower()}",
            f"inControlledShutdown={str(broker.in_controlled_shutdown).lower()}",
            f"directories=[{directories}]",
            *(f"host='{endpoint.host}', port={endpoint.port}" for endpoint in broker.endpoints),
            *(f"{each.name}: {each.min_version}-{each.max_version}" for each in broker.features),
        ):
            assert part in text
    assert set(tree["cluster"]["controllers"]) == set(map(str, image.controllers))
    for controller_id, controller in image.controllers.items():
        text = tree["cluster"]["controllers"][str(controller_id)]
        assert f"incarnationId={uuid_to_text(controller.incarnation_id)}" in text


# Our own reading of the files.


def image_of_log(path: Path) -> MetadataImage:
    loader = MetadataLoader()
    for header, records in batches(path):
        if header.is_control:
            loader.skip(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
        else:
            epoch, timestamp_ms = header.partition_leader_epoch, header.max_timestamp
            loader.load(header.base_offset, epoch, timestamp_ms, [record for _, _, record, _ in records])
    return loader.image


def image_of_snapshot(path: Path) -> MetadataImage:
    snapshot_id = parse_name(path.name)
    assert snapshot_id is not None
    delta = MetadataDelta(EMPTY_IMAGE)
    for record, _ in decode_snapshot(path.read_bytes()).records:
        delta.replay(record)
    return delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch, 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    with Cluster(tmp_path / "cluster", brokers=3, properties=settings) as cluster:
        yield cluster


def lived(cluster: Cluster) -> None:
    """Writes records of many kinds: topics created, changed and deleted, configs, producer ids, a broker that died and
    returned.
    """
    create_topic(cluster, "orders", retention_ms="90000")
    create_topic(cluster, "gone", cleanup_policy="compact")
    client = admin(cluster)

    def done(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(120)

    def config(kind: int, name: str, key: str, value: str) -> None:
        entry = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[entry]
        )
        host, _, port = cluster.bootstrap.partition(",")[0].rpartition(":")
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = call((host, int(port)), request, 1, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0

    done(client.create_topics([NewTopic("pinned", 2, replica_assignment=[[2, 1], [3, 1]])]))
    done(client.create_partitions([NewPartitions("orders", 5)]))
    done(client.delete_topics(["gone"]))
    config(TOPIC_RESOURCE, "pinned", "segment.bytes", "1048576")
    config(BROKER_RESOURCE, "1", "log.cleaner.threads", "2")
    config(BROKER_RESOURCE, "", "log.retention.ms", "120000")
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce("orders", "value")
    assert producer.flush(120) == 0
    cluster.kill(3)
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2}, "broker 3 is out of the ISRs")
    cluster.start_broker(3)
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, "it is back")


def test_kafkas_shell_reads_our_log_and_our_snapshots(cluster: Cluster, tmp_path: Path) -> None:
    lived(cluster)
    folder = cluster.data_directory / f"{METADATA_TOPIC}-0"
    cluster.stop()
    snapshots = sorted(path for path in folder.glob("*.checkpoint") if path.name[:20].strip("0"))
    assert len(snapshots) >= 2
    (log,) = folder.glob("*.log")
    readings: list[tuple[Path, Callable[[Path], MetadataImage]]] = [
        (log, image_of_log),
        (snapshots[-1], image_of_snapshot),
    ]
    for path, read in readings:
        image = read(path)
        assert {topic.name for topic in image.topics()} >= {"orders", "pinned"}
        assert "gone" not in image.topics_by_name
        assert_same(shell(path, tmp_path / path.suffix), image)
