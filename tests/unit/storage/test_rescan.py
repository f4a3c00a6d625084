"""Where recovery begins inside the segment that holds the recovery point, and when it does not trust its indexes."""

from __future__ import annotations

import pytest
from tests.support.batches import NOW_MS
from tests.support.log_world import LogWorld

from barnabas.common.log_config import LogConfig
from barnabas.storage.rescan import Place, synced_part

ONE_SEGMENT = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


def filled() -> LogWorld:
    """Forty batches of one record, all but the last five of them synced; then the process dies."""
    world = LogWorld(ONE_SEGMENT)
    for index in range(40):
        if index == 35:
            world.log.flush()
        world.append(NOW_MS + index, epoch=index // 30)
    world.log.segments.active.write_out()
    world.log.segments.release()
    return world


def positions(world: LogWorld) -> dict[int, int]:
    return {header.base_offset: at for at, header in world.log.segments.active.headers(0)}


def test_what_was_synced_is_not_scanned() -> None:
    world = filled()
    at = positions(world)[35]
    assert synced_part(world.log.segments.active, 35) == Place(at, 35)
    recovered = world.kill()
    assert recovered.log_end_offset == 40
    assert [tuple(entry) for entry in recovered.epochs.entries] == [(0, 0), (1, 30)]
    assert [record.offset for record in world.records()] == list(range(40))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_with_a_blank_page_is_made_anew(suffix: str) -> None:
    world = filled()
    (name,) = world.files(suffix)
    before = world.disk.read(world.path(name))
    file = world.disk.open(world.path(name))
    file.write_at(24, bytes(48))
    file.close()
    assert synced_part(world.log.segments.active, 35) == Place(0, 0)
    recovered = world.kill()
    assert recovered.log_end_offset == 40
    assert len(world.disk.read(world.path(name))) >= len(before)
    for index in range(40):
        assert recovered.offset_for_timestamp(NOW_MS + index) == (NOW_MS + index, index, index // 30)


def test_a_recovery_point_beyond_the_file_has_everything_scanned() -> None:
    world = filled()
    assert synced_part(world.log.segments.active, 41) == Place(0, 0)
    recovered = world.open(clean=False, recovery_point=41)
    assert (recovered.log_end_offset, recovered.recovery_point) == (40, 40)


def test_a_stale_epoch_at_the_recovery_point_gives_way_to_what_the_batches_say() -> None:
    world = filled()
    path = world.path("leader-epoch-checkpoint")
    world.disk.write(path, b"0\n3\n0 0\n1 30\n9 35\n")
    recovered = world.kill()
    assert [tuple(entry) for entry in recovered.epochs.entries] == [(0, 0), (1, 30)]
