"""A disk that fills up under a broker: writes are refused, reads continue, nothing is torn, and free space ends the
fault.

Every call that needs space is the first to fail once: in appends, rolls, checkpoints, snapshots, compaction, topic
creation, offset commits, retention and deletion, and in the metadata log.
"""

from __future__ import annotations

import pytest
from tests.support.disk_world import OFFSET_REFUSALS, REFUSALS, SMALL, DiskWorld, prepared, work
from tests.support.failing_disk import Fault, Plan
from tests.support.strides import STRIDES

from barnabas.common.errors import ErrorCode

#: A number of bytes that the workload never writes.
CALLS_MAX = 400


def run_with(plan: Plan) -> tuple[DiskWorld, set[ErrorCode], int]:
    world = prepared()
    world.disk.begin(plan)
    codes: set[ErrorCode] = set()
    work(world, codes)
    return world, codes, world.disk.calls


def check_full(world: DiskWorld, codes: set[ErrorCode]) -> None:
    """Checks the broker while the disk is full."""
    # Records are to be deleted that were refused; a topic was not created.
    follow = {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes <= {ErrorCode.NONE} | follow | REFUSALS | OFFSET_REFUSALS, codes
    world.check_answers()
    assert world.wired.broker.logs.offline_directories == set()
    world.check_all_there(may_refuse=True)


def check_healed(world: DiskWorld, *, clean: bool) -> None:
    """Checks the broker when there is space again: immediately, and after a restart."""
    world.disk.repair()
    world.run(3000)
    for topic in sorted(world.topics & {"a", "b", "compacted"}):
        assert world.produce(topic, 0, b"healed") is ErrorCode.NONE, topic
    assert world.create("afterwards") is ErrorCode.NONE
    assert world.produce("afterwards", 0, b"healed") is ErrorCode.NONE
    world.check_all_there()
    world.restart(clean=clean)
    world.check_answers()
    world.check_all_there()
    assert world.committed_offset() == world.committed
    world.restart(clean=True)
    world.wired.stop()
    world.check_files("/data", "/d2", "/meta")


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("root", ["/data", "/meta", pytest.param("/", marks=pytest.mark.full)])
@pytest.mark.parametrize("stride", STRIDES)
def test_full_from_any_call_on(stride: int, root: str, clean: bool) -> None:
    refused: set[ErrorCode] = set()
    for first in range(0, CALLS_MAX, stride):
        world, codes, calls = run_with(Plan(Fault.FULL, root, first))
        if calls <= first:
            assert first > 2, "the workload needs room"
            break
        refused |= codes
        check_full(world, codes)
        check_healed(world, clean=clean)
    else:
        raise AssertionError("the workload does not end")
    assert ErrorCode.KAFKA_STORAGE_ERROR in refused


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("stride", STRIDES)
def test_any_call_finds_no_room_once(stride: int, count: int) -> None:
    for first in range(0, CALLS_MAX, stride):
        world, codes, calls = run_with(Plan(Fault.FULL, "/", first, count))
        if calls <= first:
            break
        check_full(world, codes)
        check_healed(world, clean=first // stride % 2 == 0)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_stop_and_a_start_without_room(clean: bool) -> None:
    """The data directories are full when the broker stops and starts; the metadata is elsewhere."""
    for first in (0, 5, 20, 40):
        world = prepared()
        world.disk.begin(Plan(Fault.FULL, "/data", first))
        work(world, set())
        world.disk.begin(Plan(Fault.FULL, "/data"))
        world.restart(clean=clean)
        assert world.wired.broker.logs.offline_directories == set()
        world.check_all_there(may_refuse=True)
        assert world.produce("a", 0, b"x") in {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        world.check_answers()
        check_healed(world, clean=clean)


def test_a_partition_that_could_not_be_made_comes_with_the_room() -> None:
    world = DiskWorld("/data")
    world.disk.begin(Plan(Fault.FULL, "/data"))
    assert world.create("late") is ErrorCode.NONE, "the metadata log has room"
    assert world.produce("late", 0, b"x") is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.read("late", 0, 0)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.repair()
    world.run(1500)
    assert world.produce("late", 0, b"y") is ErrorCode.NONE
    world.check_all_there()


def test_a_full_metadata_log_refuses_and_forgets() -> None:
    world = prepared()
    world.disk.begin(Plan(Fault.FULL, "/meta"))
    for _ in range(3):
        assert world.create("late") is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.produce("a", 0, b"continues") is ErrorCode.NONE
    world.disk.repair()
    assert world.create("late") is ErrorCode.NONE
    assert world.produce("late", 0, b"x") is ErrorCode.NONE
    world.restart(clean=False)
    world.check_all_there()


def test_a_full_directory_is_asked_once_a_second() -> None:
    world = prepared("/data")
    world.disk.begin(Plan(Fault.FULL, "/data"))
    for _ in range(50):
        assert world.produce("a", 0, b"x") is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.disk.failed <= 3
    told = [text for text, _ in world.wired.host.faults.reported if "cannot be written" in text]
    assert len(told) == 1
    world.disk.repair()
    world.run(1001)
    assert world.produce("a", 0, b"y") is ErrorCode.NONE
    assert "log directory /data has free space again" in world.wired.host.faults.informed


def test_retention_frees_a_full_disk() -> None:
    world = DiskWorld("/data")
    assert world.create("a", retention_bytes="500") is ErrorCode.NONE
    for number in range(20):
        assert world.produce("a", 0, b"%d" % number) is ErrorCode.NONE
    world.starts["a", 0] = 1 << 30
    log = next(log for log in world.wired.broker.logs if log.topic_partition.topic == "a")
    world.disk.begin(Plan(Fault.FULL, "/data"))
    before = log.size_bytes
    world.run(60_000)
    assert log.size_bytes < before
    assert log.log_start_offset > 0
    assert SMALL["segment_index_bytes"], "or there would be one segment"
    world.check_answers()
