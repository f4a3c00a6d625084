"""The images that a node publishes of the metadata log."""

from __future__ import annotations

from barnabas.common.config import BrokerConfig
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.records_metadata import ConfigRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.publisher import MetadataPublisher
from barnabas.raft.snapshots import Snapshot, SnapshotId
from barnabas.simulation.host import MemoryHost

_CONFIG = BrokerConfig.from_properties(
    {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": "/data",
    }
)


def _record(value: int) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=str(value))


def _batch(offset: int) -> CommittedBatch:
    return CommittedBatch(offset, offset, 1, 0, 100, [_record(offset)])


def test_changes_that_waited_are_not_published_after_a_snapshot_that_has_them() -> None:
    store = MetadataStore()
    published: list[int] = []
    caught_up_with: list[int] = []
    store.subscribe(
        lambda delta, image: published.append(image.offset),
        catch_up=lambda delta, image: caught_up_with.append(image.offset),
    )
    publisher = MetadataPublisher(MemoryHost(seed=1).clock, _CONFIG, store, lambda image, done: None)
    publisher.on_commit(_batch(0))
    publisher.on_caught_up()
    publisher.on_commit(_batch(1))
    publisher.on_commit(_batch(2))
    # The leader has deleted the batches that follow, so this node continues from a snapshot.
    publisher.on_snapshot(SnapshotId(8, 1), Snapshot(records=[(_record(7), 0)]))
    publisher.on_commit(_batch(8))
    publisher.on_caught_up()
    assert published == [0, 8]
    assert caught_up_with == [0, 1, 2, 8]
    assert store.image.configs[4, ""]["log.retention.ms"] == "8"
    publisher.on_commit(_batch(9))
    publisher.on_caught_up()
    assert published == [0, 8, 9]
