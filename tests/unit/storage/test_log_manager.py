"""All logs of a broker: starts and stops, checkpoints, placing, deleting, retention, failed directories."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.support.batches import simple_batch
from tests.support.log_ends import end_of
from tests.support.log_world import encode_records

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError, StorageFault
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
ID_A, ID_B = b"a" * 16, b"b" * 16
MINUTE_MS = 60_000


class ManagerWorld:
    """A manager on a host in memory. HWs are the LEOs, as on a single broker."""

    def __init__(self, host: MemoryHost | None = None, dirs: str = "/d1,/d2", **properties: str) -> None:
        self.host = host or MemoryHost()
        self.dirs = dirs
        self.properties = {key.replace("_", "."): value for key, value in properties.items()}
        config = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": dirs,
            **self.properties,
        }
        self.config = BrokerConfig.from_properties(config)
        self.manager = LogManager(self.host, self.config)
        self.manager.start(high_watermark_of=end_of(self.manager))

    def create(self, topic_partition: TopicPartition = A, topic_id: bytes = ID_A, **config: Any) -> Log:
        return self.manager.get_or_create(topic_partition, topic_id, LogConfig(**config))

    def append(self, log: Log, timestamp: int = EPOCH_WALL_MS) -> None:
        log.append_as_leader(encode_records(timestamp), 0, wall_ms=self.host.clock.wall_ms())

    def restarted(self) -> ManagerWorld:
        self.manager.shutdown(7)
        return self.again()

    def killed(self) -> ManagerWorld:
        """Ends the process: its locks and timers with it."""
        self.host.disk.locked.clear()
        return self.again()

    def again(self) -> ManagerWorld:
        host = MemoryHost(disk=self.host.disk)
        return ManagerWorld(host, self.dirs, **{key.replace(".", "_"): value for key, value in self.properties.items()})

    def dir_of(self, log: Log) -> str:
        return log.directory.rpartition("/")[0]

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        return {tp: at for path in self.manager.directories for tp, at in self.read(f"{path}/{name}").items()}

    def read(self, path: str) -> dict[TopicPartition, int]:
        return read_offsets(self.host.disk, path)


def test_a_stop_in_order_leaves_all_and_says_so() -> None:
    world = ManagerWorld()
    assert world.manager.previous_broker_epoch == -1
    log = world.create()
    for _ in range(3):
        world.append(log)
    log.delete_records_before(1)
    world.manager.shutdown(42)
    assert world.checkpoint("recovery-point-offset-checkpoint") == {A: 3}
    assert world.checkpoint("replication-offset-checkpoint") == {A: 3}
    assert world.checkpoint("log-start-offset-checkpoint") == {A: 1}
    assert world.host.disk.read("/d1/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    again = world.again()
    assert not world.host.disk.exists("/d1/.kafka_cleanshutdown"), "it goes before anything is done"
    assert again.manager.previous_broker_epoch == 42
    found = again.manager.get(A)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset, found.topic_id) == (1, 3, ID_A)
    assert again.manager.checkpointed_high_watermarks() == {A: 3}
    assert again.create() is found


def test_after_a_kill_nothing_that_was_written_is_missing() -> None:
    world = ManagerWorld()
    log = world.create()
    for _ in range(5):
        world.append(log)
    path = log.segments.active.log_path
    torn = bytes(simple_batch())[:40]
    world.host.disk.open(path).append(torn)
    again = world.killed()
    assert again.manager.previous_broker_epoch == -1
    found = again.manager.get(A)
    assert found is not None
    assert found.log_end_offset == 5
    assert world.host.disk.size(path) == found.size_bytes


def test_checkpoints_are_written_now_and_then() -> None:
    world = ManagerWorld()
    log = world.create()
    world.append(log)
    log.flush()
    world.host.time.run_for(2 * MINUTE_MS)
    assert world.checkpoint("recovery-point-offset-checkpoint") == {A: 1}
    assert world.checkpoint("replication-offset-checkpoint") == {A: 1}
    assert world.checkpoint("log-start-offset-checkpoint") == {}
    log.roll()
    assert log.recovery_point == 0
    world.host.time.run_for(2 * MINUTE_MS)
    assert log.recovery_point == 1, "a full segment is synced in the background"


def test_a_truncation_is_checkpointed_before_anything_else_is_appended() -> None:
    world = ManagerWorld()
    log = world.create()
    for _ in range(4):
        world.append(log)
    log.flush()
    world.host.time.run_for(2 * MINUTE_MS)
    log.truncate_to(2)
    assert world.checkpoint("recovery-point-offset-checkpoint") == {A: 2}


def test_partitions_go_to_the_emptiest_directory() -> None:
    world = ManagerWorld()
    logs = [world.create(TopicPartition("t", index)) for index in range(6)]
    assert [world.dir_of(log) for log in logs] == ["/d1", "/d2"] * 3
    assert len(list(world.manager.logs_in("/d1"))) == 3
    assert world.manager.get_or_create(B, ID_B, LogConfig(), directory="/d2").directory == "/d2/b-3"


def test_a_deleted_partition_s_name_is_free_at_once_and_its_files_go_later() -> None:
    world = ManagerWorld()
    log = world.create(file_delete_delay_ms=MINUTE_MS)
    world.append(log)
    world.manager.delete(A)
    assert world.manager.get(A) is None
    assert world.host.disk.list_dir("/d1")[1].startswith("a-0.")
    assert world.host.disk.list_dir("/d1")[1].endswith("-delete")
    fresh = world.create(A, ID_B)
    assert fresh.log_end_offset == 0
    world.host.time.run_for(MINUTE_MS + 1000)
    assert [name for name in world.host.disk.list_dir("/d1") if name.endswith("-delete")] == []
    assert world.manager.get(A) is fresh


def test_directories_on_their_way_out_go_after_a_restart_too() -> None:
    world = ManagerWorld()
    world.append(world.create())
    world.manager.delete(A)
    again = world.restarted()
    assert again.manager.get(A) is None
    again.host.time.run_for(2 * MINUTE_MS)
    assert [name for name in world.host.disk.list_dir("/d1") if "delete" in name] == []


def test_a_log_of_an_earlier_topic_of_that_name_is_moved_away() -> None:
    world = ManagerWorld()
    world.append(world.create(A, ID_A))
    again = world.restarted()
    log = again.create(A, ID_B)
    assert (log.log_end_offset, log.topic_id) == (0, ID_B)
    assert again.restarted().manager.get(A).topic_id == ID_B  # type: ignore[union-attr]


def test_retention_runs_by_itself_and_removes_files_later() -> None:
    world = ManagerWorld()
    log = world.create(segment_bytes=100, retention_ms=10 * MINUTE_MS, file_delete_delay_ms=MINUTE_MS)
    for index in range(5):
        world.append(log, EPOCH_WALL_MS + index * MINUTE_MS)
    world.host.time.run_for(13 * MINUTE_MS)
    assert log.log_start_offset in (1, 2, 3)
    world.host.time.run_for(20 * MINUTE_MS)
    assert (log.log_start_offset, len(log.segments)) == (5, 1)
    assert [name for name in world.host.disk.list_dir(log.directory) if name.endswith(".deleted")] == []


def test_idle_producers_are_forgotten_after_the_time_that_is_set_now() -> None:
    world = ManagerWorld(
        producer_id_expiration_ms=str(10 * MINUTE_MS), producer_id_expiration_check_interval_ms=str(MINUTE_MS)
    )
    log = world.create()

    def write(producer_id: int) -> None:
        now_ms = world.host.clock.wall_ms()
        batch = encode_records(now_ms, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        log.append_as_leader(batch, 0, wall_ms=now_ms)

    write(1)
    world.host.time.run_for(8 * MINUTE_MS)
    write(2)
    assert set(log.producers.producers) == {1, 2}
    world.host.time.run_for(4 * MINUTE_MS)
    assert set(log.producers.producers) == {2}
    world.config.update_dynamic({}, {"producer.id.expiration.ms": str(60 * MINUTE_MS)})
    world.host.time.run_for(30 * MINUTE_MS)
    assert set(log.producers.producers) == {2}
    world.config.update_dynamic({}, {"producer.id.expiration.ms": str(MINUTE_MS)})
    world.host.time.run_for(2 * MINUTE_MS)
    assert set(log.producers.producers) == set()


def test_retention_of_many_logs_lets_others_in_between() -> None:
    world = ManagerWorld(dirs="/d1")
    logs = [world.create(TopicPartition("many", index), segment_bytes=100, retention_bytes=0) for index in range(450)]
    for log in logs:
        world.append(log)
        world.append(log)
    seen: list[int] = []

    def look() -> None:
        seen.append(sum(log.log_start_offset > 0 for log in logs))
        if seen[-1] < len(logs):
            world.host.timers.call_later(1, look)

    world.host.timers.call_later(29_999, look)
    world.host.time.run_for(40_000)
    steps = [after - before for before, after in pairwise(seen)]
    assert seen[-1] == len(logs)
    assert max(steps) <= 201


def test_flush_ms_is_kept() -> None:
    world = ManagerWorld(log_flush_scheduler_interval_ms="1000")
    log = world.create(flush_ms=5000)
    world.append(log)
    world.host.time.run_for(4000)
    assert log.recovery_point == 0
    world.host.time.run_for(4000)
    assert log.recovery_point == 1


def test_a_directory_in_use_is_refused() -> None:
    world = ManagerWorld()
    with pytest.raises(ConfigError, match="in use by another process"):
        ManagerWorld(MemoryHost(disk=world.host.disk))


def failing(world: ManagerWorld, directory: str) -> None:
    """Lets every use of files below `directory` fail from now on."""
    disk = world.host.disk

    def wrap(name: str) -> None:
        real: Callable[..., object] = getattr(disk, name)

        def call(path: str, *args: object, **options: object) -> object:
            if path == directory or path.startswith(directory + "/"):
                raise OSError(errno.EIO, "Input/output error", path)
            return real(path, *args, **options)

        setattr(disk, name, call)

    for name in ("open", "read", "write", "rename", "list_dir", "sync_dir", "make_dirs", "remove", "lock", "size"):
        wrap(name)


def test_a_failed_directory_leaves_the_others_serving() -> None:
    world = ManagerWorld()
    sick, sound = world.create(A), world.create(B, ID_B)
    world.append(sick)
    world.append(sound)
    sick.segments.release()
    failing(world, "/d1")
    with pytest.raises(StorageFault) as fault:
        world.append(sick)
    world.manager.storage_fault(fault.value)
    assert world.manager.offline_directories == {"/d1"}
    world.append(sound)
    world.host.time.run_for(10 * MINUTE_MS)
    assert world.create(TopicPartition("c", 0)).directory == "/d2/c-0"
    world.manager.shutdown(9)
    assert not world.host.disk.exists("/d1/.kafka_cleanshutdown")
    assert world.host.disk.exists("/d2/.kafka_cleanshutdown")


def test_a_directory_that_cannot_be_read_is_left_out_at_the_start() -> None:
    world = ManagerWorld()
    world.append(world.create(A))
    world.append(world.create(B, ID_B))
    world.manager.shutdown(3)
    failing(world, "/d1")
    again = world.again()
    assert again.manager.offline_directories == {"/d1"}
    assert again.manager.previous_broker_epoch == -1
    assert again.manager.get(A) is None
    assert again.manager.get(B) is not None
    failing(world, "/d2")
    with pytest.raises(ConfigError, match="none of log"):
        again.killed()


def test_a_thousand_partitions_keep_few_files_open_and_few_timers() -> None:
    world = ManagerWorld()
    for index in range(1000):
        world.append(world.create(TopicPartition("many", index)))
    timers = len(world.host.time._heap)
    assert timers < 10
    again = world.restarted()
    assert sum(1 for _ in again.manager) == 1000
    assert len(again.host.time._heap) <= timers


def test_every_checkpoint_is_there_from_the_first_start_on() -> None:
    """Empty at first, as Apache Kafka makes them, and with its two lines after a stop."""
    world = ManagerWorld(dirs="/d1")
    names = (
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    )
    assert [world.host.disk.read(f"/d1/{name}") for name in names] == [b""] * 4
    world.append(world.create())
    world.manager.shutdown(1)
    assert world.host.disk.read("/d1/log-start-offset-checkpoint") == b"0\n0\n"


def _lost_of(world: ManagerWorld) -> dict[TopicPartition, int]:
    return dict(world.manager.damaged.missing)


class TestDirectoriesThatGo:
    """A start takes a recovery point without a directory for that of a lost log."""

    def _checkpointed(self, **config: Any) -> tuple[ManagerWorld, Log]:
        world = ManagerWorld()
        log = world.create(**config)
        for _ in range(3):
            world.append(log)
        log.flush()
        world.manager._upkeep.write_checkpoints()
        assert world.checkpoint("recovery-point-offset-checkpoint") == {A: 3}
        return world, log

    def test_a_deleted_log_is_not_lost(self) -> None:
        """The directory is removed long before the next checkpoint."""
        world, log = self._checkpointed(file_delete_delay_ms=1_000)
        world.manager.delete(A)
        world.host.time.run_for(2_000)
        assert not world.host.disk.is_dir(log.directory)
        again = world.killed()
        assert _lost_of(again) == {}
        found = again.create(topic_id=ID_B)
        assert (found.log_end_offset, again.host.faults.reported) == (0, [])

    def test_a_log_that_was_moved_is_not_lost(self) -> None:
        world, log = self._checkpointed(file_delete_delay_ms=1_000)
        target = "/d2" if world.dir_of(log) == "/d1" else "/d1"
        future = world.manager.futures.create(A, target, log.config)
        future.append_as_follower(log.segments.active.read(0, log.size_bytes))
        source = log.directory.rpartition("/")[0]
        moved = world.manager.futures.exchange(A, log.config)
        (left,) = [name for name in world.host.disk.list_dir(source) if name.endswith("-delete")]
        world.host.disk.remove_tree(f"{source}/{left}")
        before = world.killed()
        assert _lost_of(before) == {}, "the checkpoint of the source is older than the move"
        world = before.killed()
        found = world.manager.get(A)
        assert found is not None
        assert (found.directory, found.log_end_offset) == (moved.directory, 3)
        world.manager.delete(A)
        world.host.time.run_for(MINUTE_MS + 2_000)
        again = world.killed()
        assert _lost_of(again) == {}
        assert again.create(topic_id=ID_B).log_end_offset == 0

    def test_a_stray_is_not_lost(self) -> None:
        world, _ = self._checkpointed()
        world.manager.set_aside(A)
        assert _lost_of(world.killed()) == {}

    def test_a_directory_that_somebody_removed_is_lost(self) -> None:
        world, log = self._checkpointed()
        world.host.disk.remove_tree(log.directory)
        assert _lost_of(world.killed()) == {A: 3}

    def test_a_full_disk_is_freed_nevertheless(self) -> None:
        world, log = self._checkpointed(file_delete_delay_ms=1_000)
        world.manager.delete(A)
        world.host.disk.free_bytes = 0
        world.host.time.run_for(2_000)
        assert not world.host.disk.is_dir(log.directory)


def test_a_requested_directory_is_kept_until_the_log_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ManagerWorld()
    other = "/d2" if world.create(B, ID_B).directory.startswith("/d1") else "/d1"
    emptiest = "/d1" if other == "/d2" else "/d2"
    world.create(TopicPartition("c", 0), b"c" * 16)
    world.create(TopicPartition("d", 0), b"d" * 16)
    world.manager.futures.request(A, emptiest)
    adopt = world.manager._adopt

    def fail(opening: Any) -> Log:
        raise OSError(errno.EIO, "an input/output error")

    monkeypatch.setattr(world.manager, "_adopt", fail)
    with pytest.raises(StorageFault):
        world.create(A, ID_A)
    monkeypatch.setattr(world.manager, "_adopt", adopt)
    assert world.manager.futures.requested(A) == emptiest
    assert world.create(A, ID_A).directory == f"{emptiest}/a-0"
    assert world.manager.futures.requested(A) is None
