"""A log with many segments is read to its end, however small the limit of open files."""

from __future__ import annotations

import pytest
from tests.support.batches import NOW_MS
from tests.support.log_world import LogWorld
from tests.support.scarce_disk import ScarceDisk

from barnabas.storage.batch_file import Descriptors
from barnabas.storage.log_reads import LogRead

_SEGMENTS = 40


@pytest.mark.parametrize("limit", range(3, 9))
@pytest.mark.parametrize("stride", [1, 7])
def test_many_segments_are_read_with_few_descriptors(limit: int, stride: int) -> None:
    disk = ScarceDisk(1_000)
    world = LogWorld(disk=disk)
    while len(world.log.segments) < _SEGMENTS:
        world.append(NOW_MS, value=bytes(200))
    world.descriptors = Descriptors()
    log = world.restart()
    disk.limit = disk.open_files + limit
    order = sorted(range(log.log_end_offset), key=lambda offset: (offset % stride, offset))
    for offset in order:
        read = log.read_cached(offset, 1, up_to=log.log_end_offset)
        assert isinstance(read, LogRead)
        assert int.from_bytes(read.data[:8], "big") == offset
        assert log.read(offset, 1, up_to=log.log_end_offset).data == read.data
    assert disk.open_files <= disk.limit
