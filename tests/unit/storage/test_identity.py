"""`partition.metadata` and the files of a log without a record: both are created with the first record at the
latest.
"""

from __future__ import annotations

import pytest
from tests.support.batches import NOW_MS
from tests.support.log_world import PARTITION, TINY, TOPIC_ID, LogWorld
from tests.unit.storage.test_log_manager import ID_A, ID_B, A, ManagerWorld

from barnabas.common.types import ZERO_UUID
from barnabas.simulation.crashing_disk import CrashingDisk, Fate, PowerFailure
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import decode_partition_metadata
from barnabas.storage.log import Log
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.segments import LogServices

FIRST = ["00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex"]
NAME = "partition.metadata"


def opened(disk: CrashingDisk, topic_id: bytes | None) -> Log:
    """Opens the log as the next process does, before (None) or after the metadata has its topic id."""
    services = LogServices(disk, lambda: NOW_MS, lambda bound: 0, Descriptors())
    return open_log(services, Opening(f"/logs/{PARTITION}", PARTITION, TINY, topic_id))


def test_a_new_log_is_an_empty_directory() -> None:
    world = LogWorld()
    assert world.files() == []
    assert (world.log.log_start_offset, world.log.log_end_offset, world.log.topic_id) == (0, 0, TOPIC_ID)


def test_the_first_record_brings_the_topic_id_and_the_files() -> None:
    world = LogWorld()
    world.append(1)
    assert world.files() == [*FIRST, NAME]
    assert decode_partition_metadata(NAME, world.disk.read(world.path(NAME))) == TOPIC_ID


def test_a_stop_in_order_without_a_record_leaves_the_topic_id() -> None:
    world = LogWorld()
    world.restart()
    assert world.files() == [NAME]
    world.append(1)
    assert world.offsets() == [0]


def test_a_log_that_begins_elsewhere_has_its_topic_id() -> None:
    world = LogWorld()
    world.log.truncate_fully_and_start_at(42)
    assert world.files(".log") == ["00000000000000000042.log"]
    assert world.files(NAME) == [NAME]


def write_one(world: LogWorld) -> None:
    world.append(1)
    world.log.flush()


def changes_of_the_first_record() -> int:
    disk = CrashingDisk()
    world = LogWorld(disk=disk)
    before = disk.changes
    write_one(world)
    return disk.changes - before


@pytest.mark.parametrize("fate", list(Fate))
def test_whenever_the_power_fails_a_log_with_records_has_its_topic_id(fate: Fate) -> None:
    """G14 across a crash: records are never taken for those of another topic of that name."""
    changes = changes_of_the_first_record()
    assert changes > 8
    for failing in range(changes):
        disk = CrashingDisk()
        world = LogWorld(disk=disk)
        disk.changes_left = disk.changes + failing
        with pytest.raises(PowerFailure):
            write_one(world)
        found = opened(disk.after_crash(fate), None)
        assert found.log_end_offset == 0 or found.topic_id == TOPIC_ID, f"after {failing} changes"
        assert found.topic_id in (TOPIC_ID, ZERO_UUID)


@pytest.mark.parametrize("fate", list(Fate))
def test_a_directory_without_topic_id_and_records_is_good_for_any_topic(fate: Fate) -> None:
    """Kafka sets it aside and makes another one; the partition is as new in both cases."""
    changes = changes_of_the_first_record()
    for failing in range(changes):
        disk = CrashingDisk()
        world = LogWorld(disk=disk)
        disk.changes_left = disk.changes + failing
        with pytest.raises(PowerFailure):
            write_one(world)
        after = disk.after_crash(fate)
        if opened(after, None).topic_id != ZERO_UUID:
            continue
        again = LogWorld(disk=after, clean=False)
        again.append(7)
        assert [record.timestamp for record in again.records()] == [7]
        assert again.restart().topic_id == TOPIC_ID


def test_topic_ids_of_new_logs_are_written_in_the_background() -> None:
    world = ManagerWorld()
    log = world.create()
    path = f"{log.directory}/{NAME}"
    assert not world.host.disk.exists(path)
    world.host.time.run_for(10_000)
    assert decode_partition_metadata(path, world.host.disk.read(path)) == ID_A
    assert world.host.disk.list_dir(log.directory) == [NAME]
    world.append(log)
    assert log.log_end_offset == 1


def test_not_while_logs_are_made_one_after_the_other() -> None:
    world = ManagerWorld()
    first = world.create()
    for index in range(1, 6):
        world.host.time.run_for(1_000)
        world.create(A._replace(partition=index))
    assert not world.host.disk.exists(f"{first.directory}/{NAME}")
    world.host.time.run_for(10_000)
    for log in world.manager:
        assert world.host.disk.exists(f"{log.directory}/{NAME}")


def test_a_record_does_not_wait_for_the_background_write() -> None:
    world = ManagerWorld()
    log = world.create()
    world.append(log)
    assert world.host.disk.exists(f"{log.directory}/{NAME}")
    world.host.time.run_for(10_000)
    assert not [name for name in world.host.disk.list_dir(log.directory) if name.endswith(".next")]


def test_an_empty_log_of_a_killed_broker_is_taken_for_what_the_metadata_say() -> None:
    world = ManagerWorld()
    world.create(A, ID_A)
    again = world.killed()
    log = again.create(A, ID_B)
    assert (log.log_end_offset, log.topic_id) == (0, ID_B)
    again.append(log)
    after = again.killed().manager.get(A)
    assert after is not None
    assert after.topic_id == ID_B


def test_a_log_from_before_topic_ids_is_given_one() -> None:
    world = ManagerWorld()
    log = world.create(A, ID_A)
    world.append(log)
    world.manager.shutdown(7)
    world.host.disk.remove(f"{log.directory}/{NAME}")
    again = world.again()
    found = again.create(A, ID_A)
    assert (found.log_end_offset, found.topic_id) == (1, ID_A)
    assert again.host.disk.exists(f"{found.directory}/{NAME}")
