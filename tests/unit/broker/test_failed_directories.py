"""A log directory of several fails: its partitions answer KAFKA_STORAGE_ERROR, the others serve, nothing is lost.

Every call to that directory's disk is the first to fail once, for errors of the device, a file system that has become
read-only, and a missing tree.
"""

from __future__ import annotations

import pytest
from tests.support.disk_world import OFFSET_REFUSALS, REFUSALS, DiskWorld, FatalStop, prepared, work
from tests.support.failing_disk import Fault, Plan

from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

CALLS_MAX = 2000
FAULTS = [Fault.BROKEN, Fault.READ_ONLY, Fault.GONE]


def directories_of(world: DiskWorld) -> dict[str, int]:
    response = world.client.call(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    return {result.log_dir: result.error_code for result in response.results}


def place_of(world: DiskWorld, topic: str, index: int) -> str:
    log = world.wired.broker.logs.get(TopicPartition(topic, index))
    assert log is not None
    return log.directory.rpartition("/")[0]


def check_one_serves(world: DiskWorld, codes: set[ErrorCode]) -> None:
    follow = {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes <= {ErrorCode.NONE} | follow | REFUSALS | OFFSET_REFUSALS, codes
    world.check_answers()
    offline = world.wired.broker.logs.offline_directories
    assert offline <= {"/d2"}
    world.check_all_there(may_refuse=True)
    for topic in sorted(world.topics & {"a", "compacted"}):
        for index in range(2 if topic == "a" else 1):
            expected = ErrorCode.KAFKA_STORAGE_ERROR if place_of(world, topic, index) in offline else ErrorCode.NONE
            assert world.produce(topic, index, b"on") is expected
            assert world.read(topic, index, world.starts.get((topic, index), 0))[0] is expected
    if offline:
        assert directories_of(world) == {"/data": 0, "/d2": ErrorCode.KAFKA_STORAGE_ERROR}


def check_repaired(world: DiskWorld, *, clean: bool) -> None:
    world.disk.repair()
    world.restart(clean=clean)
    world.check_answers()
    assert directories_of(world) == {"/data": 0, "/d2": 0}
    world.check_all_there()
    assert world.committed_offset() == world.committed
    for topic in sorted(world.topics & {"a", "b", "compacted"}):
        assert world.produce(topic, 0, b"repaired") is ErrorCode.NONE
    world.wired.stop()
    world.check_files("/data", "/d2", "/meta")


def sweep(fault: Fault, stride: int, start: int = 0) -> set[ErrorCode]:
    seen: set[ErrorCode] = set()
    for first in range(start, CALLS_MAX, stride):
        world = prepared()
        world.disk.begin(Plan(fault, "/d2", first))
        codes: set[ErrorCode] = set()
        work(world, codes)
        if world.disk.calls <= first:
            return seen
        seen |= codes
        check_one_serves(world, codes)
        check_repaired(world, clean=(first // stride) % 2 == 0)
    raise AssertionError("the workload does not end")


@pytest.mark.parametrize("fault", FAULTS)
def test_failing_from_some_calls_on(fault: Fault) -> None:
    assert ErrorCode.KAFKA_STORAGE_ERROR in sweep(fault, 5)


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_failing_from_any_call_on(fault: Fault) -> None:
    assert ErrorCode.KAFKA_STORAGE_ERROR in sweep(fault, 1)


@pytest.mark.parametrize("fault", [Fault.BROKEN, Fault.GONE])
def test_a_start_with_a_failed_directory_serves_the_rest(fault: Fault) -> None:
    world = prepared()
    work(world, set())
    lost = {place for place in world.acked if place_of(world, *place) == "/d2"}
    assert lost, "both directories hold partitions"
    world.disk.begin(Plan(fault, "/d2"))
    world.restart(clean=False)
    assert directories_of(world) == {"/data": 0, "/d2": ErrorCode.KAFKA_STORAGE_ERROR}
    for topic, index in world.acked:
        expected = ErrorCode.KAFKA_STORAGE_ERROR if (topic, index) in lost else ErrorCode.NONE
        start = world.starts.get((topic, index), 0)
        assert world.read(topic, index, start)[0] is expected, f"an empty log took the place of {topic}-{index}"
        assert world.produce(topic, index, b"x") is expected
    image = world.wired.broker.metadata.image
    for topic, index in sorted(lost):
        partition = image.partition(topic, index)
        assert partition is not None
        assert partition.leader == -1, "who has not got its directory does not lead"
    assert world.create("new", 2) is ErrorCode.NONE
    assert world.produce("new", 0, b"x") is ErrorCode.NONE
    assert world.produce("new", 1, b"x") is ErrorCode.NONE
    check_repaired(world, clean=True)


def test_a_start_without_any_directory_is_refused_in_one_line() -> None:
    world = prepared()
    world.wired.stop()
    for root, text in (("/meta", "/meta has no metadata log"), ("/d", "none of log.dirs=/data,/d2 can be used")):
        world.disk.begin(None)
        world.disk.locked.clear()
        broken = Plan(Fault.BROKEN, root if root == "/meta" else "/")
        if root == "/meta":
            world.disk.begin(broken)
        else:
            world.disk.begin(None)
            world.disk.remove_tree("/data")
            world.disk.remove_tree("/d2")
            world.disk.write("/data", b"a file")
            world.disk.write("/d2", b"a file")
        with pytest.raises(ConfigError, match=text) as refused:
            world.wired._start()
        assert "\n" not in str(refused.value)


def test_the_last_directory_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(message: str, error: BaseException | None = None) -> None:
        raise FatalStop(message)

    world = prepared()
    monkeypatch.setattr(world.wired.host.faults, "fatal", stop)
    world.disk.begin(Plan(Fault.BROKEN, "/d2"))
    world.run(20_000)
    assert world.wired.broker.logs.offline_directories == {"/d2"}
    world.disk.begin(Plan(Fault.BROKEN, "/data"))
    with pytest.raises(FatalStop, match=r"all of log\.dirs=/data,/d2 have failed"):
        world.produce("a", 0, b"x")
        world.produce("a", 1, b"x")
        world.run(20_000)


def test_the_metadata_directory_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(message: str, error: BaseException | None = None) -> None:
        raise FatalStop(message)

    world = prepared()
    monkeypatch.setattr(world.wired.host.faults, "fatal", stop)
    world.disk.begin(Plan(Fault.BROKEN, "/meta"))
    with pytest.raises(FatalStop, match="the metadata log in /meta failed"):
        world.create("late")


def test_the_controller_and_clients_are_notified() -> None:
    world = prepared()
    lost = {place for place in world.acked if place_of(world, *place) == "/d2"}
    directory_id = world.wired.broker.logs.roots.id_of("/d2")
    assert directory_id in world.wired.broker.metadata.image.brokers[1].directories
    world.disk.begin(Plan(Fault.BROKEN, "/d2"))
    for topic, index in sorted(lost):
        assert world.produce(topic, index, b"x") is ErrorCode.KAFKA_STORAGE_ERROR
    world.run(500)
    assert directory_id not in world.wired.broker.metadata.image.brokers[1].directories
    response = world.client.call(MetadataRequest(topics=None), 8, MetadataResponse)
    rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
    for place, row in rows.items():
        if place[0] not in ("a", "compacted", "doomed"):
            continue
        if place in lost:
            assert (row.leader_id, row.offline_replicas) == (-1, [1])
            assert row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        else:
            assert (row.leader_id, row.offline_replicas) == (1, [])


def test_without_descriptors_nothing_goes_offline() -> None:
    for first in range(0, 60, 3):
        world = prepared()
        world.disk.begin(Plan(Fault.NO_DESCRIPTORS, "/", first, count=5))
        work(world, set())
        world.disk.repair()
        world.run(3000)
        assert world.wired.broker.logs.offline_directories == set()
        world.check_answers()
        assert world.produce("a", 0, b"x") is ErrorCode.NONE
        world.check_all_there()
