"""Decisions with more records than fit into one batch (KIP-868)."""

from __future__ import annotations

import pytest
from tests.support.node_world import NodeWorld

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft.metadata_transactions import all_or_nothing
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.snapshots import Snapshot, SnapshotId

#: The number of records of 2 KB: eleven batches of 1,000 records, or three of 8 MiB.
MANY = 10_001


class Ear:
    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None: ...

    def on_commit(self, batch: CommittedBatch) -> None:
        self.batches.append(batch)

    def on_caught_up(self) -> None: ...


def big(count: int) -> list[Versioned]:
    value = "v" * 2_000
    return [(ConfigRecord(resource_type=2, resource_name=f"t{n}", name="k", value=value), 0) for n in range(count)]


def test_many_records_become_visible_at_once_or_not_at_all() -> None:
    world = NodeWorld()
    ear = Ear()
    world.raft.add_listener(ear)
    world.join()
    world.published.clear()
    ear.batches.clear()
    answers: list[str] = []
    refused: list[ErrorCode] = []
    assert world.controller.proposals.propose(
        Result(big(MANY), "done", Cause(ControllerEvent.CREATE_TOPICS, "test")), answers.append, refused.append
    )
    assert (answers, refused) == (["done"], [])
    assert len(ear.batches) == 11
    assert max(len(batch.records) for batch in ear.batches) == 1_000
    records: list[Message] = [record for batch in ear.batches for record in batch.records]
    assert isinstance(records[0], BeginTransactionRecord)
    assert records[0].name == "CreateTopics"
    assert isinstance(records[-1], EndTransactionRecord)
    assert len(records) == MANY + 2
    assert len([delta for delta, _ in world.published if delta.changed_configs]) == 1
    assert len(world.image.configs) >= MANY
    assert world.controller.image.offset == world.image.offset == world.raft.log_end_offset - 1


@pytest.mark.parametrize(("count", "metadata_version"), [(2_000, 27), (MANY, 12)])
def test_few_records_and_older_clusters_get_on_without(count: int, metadata_version: int) -> None:
    record: Versioned = (FeatureLevelRecord(name=METADATA_VERSION, feature_level=12), 0)
    records = [record] * count
    assert all_or_nothing(records, metadata_version, "x") is records
