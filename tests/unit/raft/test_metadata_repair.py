"""The plan of a repair of the metadata log, where its files contradict each other or are lost."""

from __future__ import annotations

import pytest

from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.repair import MetadataRepair
from barnabas.raft.snapshots import SnapshotFiles, SnapshotId, encode_snapshot
from barnabas.simulation.disk import MemoryDisk


@pytest.mark.parametrize("epochs", [(2, 5), (5,)])
def test_a_lost_vote_is_replaced_by_one_after_every_epoch_that_a_snapshot_names(epochs: tuple[int, ...]) -> None:
    disk = MemoryDisk()
    directory = metadata_log_directory("/data")
    disk.make_dirs(directory)
    for number, epoch in enumerate(epochs, 1):
        data = encode_snapshot(
            [], epoch=epoch, wall_ms=1, last_contained_log_timestamp_ms=1, kraft_version=0, voters=None
        )
        SnapshotFiles(disk, directory).write(SnapshotId(100 * number, epoch), data)
    repair = MetadataRepair(disk, "/data")
    assert [fault.message for fault in repair.faults] == ["is missing, although this node took part in epoch 5"]
    assert any(step.endswith("quorum-state: rewritten, to begin with epoch 6") for step in repair.steps)
