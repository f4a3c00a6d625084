"""The active controller's NoOp records, in a separate quorum and on a single node."""

from __future__ import annotations

from tests.support.controller_world import make_config

from barnabas.controller.kraft.no_ops import NoOpWriter
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.records_metadata import NoOpRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.formatting import ensure_formatted
from barnabas.raft.node import RaftNode
from barnabas.raft.snapshots import Snapshot, SnapshotId
from barnabas.simulation.host import MemoryHost


class Ear:
    def __init__(self) -> None:
        self.records: list[object] = []

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None: ...

    def on_commit(self, batch: CommittedBatch) -> None:
        self.records += batch.records

    def on_caught_up(self) -> None: ...


def written(within_ms: int, *, interval_ms: int = 500, brokers: tuple[int, ...] = (1, 2)) -> int:
    """Returns the number of committed NoOp records, and checks that there are no others."""
    config = make_config({"metadata.max.idle.interval.ms": str(interval_ms)})
    host = MemoryHost(0)
    raft = RaftNode(host, config, MetadataStore(), ensure_formatted(host, config))
    ear = Ear()
    raft.add_listener(ear)
    writer = NoOpWriter(host, config, raft, lambda: brokers)
    raft.start()
    writer.start()
    host.time.run_for(within_ms)
    assert all(isinstance(record, NoOpRecord) for record in ear.records)
    count = len(ear.records)
    writer.stop()
    host.time.run_for(10 * interval_ms)
    assert len(ear.records) == count, "it was told to stop"
    raft.stop()
    return count


def test_the_log_moves_on_where_nothing_changes() -> None:
    assert written(5_100) == 10
    assert written(5_100, interval_ms=100) == 51


def test_nothing_is_written_for_nobody_nor_where_it_is_turned_off() -> None:
    assert written(5_100, brokers=(1,)) == 0
    assert written(5_100, interval_ms=0) == 0
