"""The checkpoint of the metadata log: two lines are written in turn, so that one of them survives a torn write."""

from __future__ import annotations

import pytest

from barnabas.raft.log_checkpoint import CheckpointIdentity, LogCheckpoint, LogCheckpointFile
from barnabas.simulation.disk import MemoryDisk

_IDENTITY = CheckpointIdentity(1, "cluster", "directory")


def _written(count: int) -> tuple[MemoryDisk, LogCheckpointFile]:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    file = LogCheckpointFile(disk, "/data")
    file.create(_IDENTITY, LogCheckpoint(end=100))
    for number in range(1, count + 1):
        file.write(LogCheckpoint(end=100 + number))
    file.sync()
    file.close()
    return disk, file


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_a_torn_write_leaves_the_checkpoint_before(count: int) -> None:
    disk, file = _written(count)
    before, _ = _written(count - 1)
    whole, old = disk.read(file.path), before.read(file.path)
    changed = [place for place in range(len(whole)) if whole[place] != old[place]]
    torn = bytearray(whole)
    torn[changed[0] : changed[-1] + 1] = bytes(changed[-1] + 1 - changed[0])
    disk.write(file.path, torn)
    found = LogCheckpointFile(disk, "/data")
    assert found.checkpoint == LogCheckpoint(end=100 + count - 1)
    assert found.is_damaged
    assert found.identity == _IDENTITY


def test_the_newest_line_counts() -> None:
    for count in range(1, 12):
        disk, _ = _written(count)
        found = LogCheckpointFile(disk, "/data")
        assert found.checkpoint == LogCheckpoint(end=100 + count)
        assert not found.is_damaged
