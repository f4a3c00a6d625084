"""A follower that has to truncate its log while the disk is full: nothing changes, and it succeeds later."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.batches import simple_batch
from tests.unit.storage.test_log_manager import A, ManagerWorld

from barnabas.common.errors import StorageExhausted
from barnabas.storage.log import Log

TRUNCATIONS: list[Callable[[Log], None]] = [
    lambda log: log.truncate_to(2),
    lambda log: log.truncate_fully_and_start_at(2),
]


def followed(world: ManagerWorld) -> Log:
    """Returns a log with records of two epochs, synced, and a checkpoint that says so."""
    log = world.create()
    for offset in range(4):
        log.append_as_follower(simple_batch(base_offset=offset, leader_epoch=offset // 2))
    log.flush()
    world.manager._upkeep.write_checkpoints()
    return log


@pytest.mark.parametrize("truncate", TRUNCATIONS)
def test_nothing_changes_until_there_is_room(truncate: Callable[[Log], None]) -> None:
    """The directory failed, and its replicas came back with the next start of the broker only."""
    world = ManagerWorld()
    log = followed(world)
    before = (log.log_end_offset, log.recovery_point, log.epochs.latest_epoch)
    world.host.disk.free_bytes = 0
    for _ in range(2):
        with pytest.raises(StorageExhausted) as caught:
            truncate(log)
        assert (log.log_end_offset, log.recovery_point, log.epochs.latest_epoch) == before
    world.manager.storage_fault(caught.value)
    assert not world.manager.offline_directories
    world.host.disk.free_bytes = 1 << 30
    truncate(log)
    assert log.log_end_offset == 2
    assert log.recovery_point <= 2
    again = world.killed().manager.get(A)
    assert again is not None
    assert again.log_end_offset == 2
