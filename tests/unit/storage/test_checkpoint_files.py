"""Offset checkpoints written in the background, events that make a draft void, and the stop of a broker with many
logs.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.batches import NOW_MS
from tests.support.log_world import PARTITION, TOPIC_ID, encode_records
from tests.support.power_world import started

from barnabas.common.host import Buffer
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoint_files import CheckpointFiles, LogDirectory
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

POINTS = "/data/recovery-point-offset-checkpoint"


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(memoryview(encode_records(NOW_MS)), 0, wall_ms=NOW_MS)


def flushed(host: MemoryHost, manager: LogManager) -> Log:
    log = manager.get_or_create(PARTITION, TOPIC_ID, LogConfig())
    append(log, 5)
    log.flush()
    return log


def until_a_draft_is_on_its_way(host: MemoryHost, manager: LogManager) -> None:
    (directory,) = manager.roots.online()
    for _ in range(10_000):
        if "recovery-point-offset-checkpoint" in directory.drafts:
            return
        host.time.run_for(1)
    raise AssertionError("no draft")


def test_a_draft_takes_its_name_soon_and_leaves_nothing_behind() -> None:
    host = MemoryHost()
    manager = started(host)
    flushed(host, manager)
    until_a_draft_is_on_its_way(host, manager)
    host.time.run_for(20)
    assert read_offsets(host.disk, POINTS) == {PARTITION: 5}
    assert [name for name in host.disk.list_dir("/data") if "beside" in name] == []


def test_a_truncation_makes_the_draft_void_that_says_more() -> None:
    host = MemoryHost()
    manager = started(host)
    log = flushed(host, manager)
    until_a_draft_is_on_its_way(host, manager)
    log.truncate_to(2)
    append(log, 3)
    for _ in range(20):
        assert read_offsets(host.disk, POINTS).get(PARTITION, 0) <= 2
        host.time.run_for(1)
    assert [name for name in host.disk.list_dir("/data") if "beside" in name] == []


def test_a_draft_that_speaks_of_an_earlier_log_of_that_name_is_void() -> None:
    host = MemoryHost()
    manager = started(host)
    flushed(host, manager)
    until_a_draft_is_on_its_way(host, manager)
    manager.delete(PARTITION)
    append(manager.get_or_create(PARTITION, bytes(range(1, 17)), LogConfig()), 7)
    for _ in range(20):
        assert read_offsets(host.disk, POINTS).get(PARTITION, 0) == 0
        host.time.run_for(1)


def test_what_a_process_left_half_written_is_removed() -> None:
    host = MemoryHost()
    started(host).shutdown(1)
    host.disk.write(f"{POINTS}.beside-12345678", b"0\n1\norders")
    started(MemoryHost(disk=host.disk))
    assert not host.disk.exists(f"{POINTS}.beside-12345678")


def test_logs_that_did_not_change_are_not_written_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    host = MemoryHost()
    manager = started(host)
    for index in range(3):
        append(manager.get_or_create(TopicPartition("t", index), TOPIC_ID, LogConfig()), 3)
    manager.shutdown(1)
    again = started(MemoryHost(disk=host.disk))
    changed = again.get(TopicPartition("t", 1))
    assert changed is not None
    append(changed)
    written: list[str] = []
    write = host.disk.write

    def noted(path: str, data: Buffer, *, sync: bool = False) -> None:
        written.append(path)
        write(path, data, sync=sync)

    monkeypatch.setattr(host.disk, "write", noted)
    again.shutdown(1)
    assert {path.split("/")[2] for path in written if "/t-" in path} == {"t-1"}
    third = started(MemoryHost(disk=host.disk))
    assert [log.log_end_offset for log in third] == [3, 4, 3]


def test_a_truncation_above_the_recovery_point_writes_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    host = MemoryHost()
    manager = started(host)
    log = flushed(host, manager)
    host.time.run_for(120_000)
    assert read_offsets(host.disk, POINTS) == {PARTITION: 5}
    append(log, 3)
    written: list[str] = []
    write = CheckpointFiles.write

    def counted(
        files: CheckpointFiles, directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        written.append(name)
        write(files, directory, name, offsets)

    monkeypatch.setattr(CheckpointFiles, "write", counted)
    log.truncate_to(6)
    assert written == []
    log.truncate_to(4)
    assert written == ["recovery-point-offset-checkpoint"]
    assert read_offsets(host.disk, POINTS) == {PARTITION: 4}
