"""Finding 3: a log that ends before its recovery point, lacks a segment or has one that ends inside a batch reports
this with offsets, never assigns an offset again, and answers readers of the lost range.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.damage import Files, files_in
from tests.support.damaged_world import (
    DAMAGED,
    ROOT,
    SOUND,
    killed,
    logs_of,
    lost,
    readable,
    started,
    stopped,
    taken_up,
    without_files,
    write,
)

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.storage.directories import NO_BROKER_EPOCH
from barnabas.storage.log import Log


def cut_short(files: Files, path: str, keep: int) -> Files:
    return files | {path: files[path][:keep]}


def taken_up_alone(files: Files) -> Log:
    manager, host = started(files)
    (line,) = [text for text, _ in host.faults.reported]
    assert line.startswith("orders-0 is damaged: ")
    assert f"`barnabas log verify {ROOT}/orders-0`" in line
    assert manager.damaged.waiting == {DAMAGED}
    assert manager.previous_broker_epoch == NO_BROKER_EPOCH
    assert len(readable(taken_up(manager, SOUND))) == 40
    log = taken_up(manager)
    assert manager.damaged.waiting == set()
    check_named(log)
    write(log, 3)
    assert log.log_end_offset == 43
    manager.shutdown(8)
    check_next_start(files_in(host.disk, ROOT), log)
    return log


def check_named(log: Log) -> None:
    """Checks that each of the forty offsets is served or reported."""
    assert log.log_end_offset == 40
    records = readable(log)
    assert sorted(set(records) | lost(log)) == list(range(40))
    assert not set(records) & lost(log)
    assert all(value == b"record %d" % offset for offset, value in records.items())


def check_next_start(files: Files, before: Log) -> None:
    """Checks that the next start reports the same, and does not make the replica leave the ISR again."""
    manager, host = started(files)
    assert host.faults.reported == []
    assert manager.previous_broker_epoch == 8
    log = taken_up(manager)
    assert lost(log) == lost(before)
    assert sorted(readable(log)) == sorted(set(range(43)) - lost(before))


@pytest.mark.parametrize("stop", [stopped, killed])
def test_nothing_is_said_about_a_log_that_reaches_its_high_watermark(stop: Callable[[], Files]) -> None:
    _, host = started(stop())
    assert host.faults.reported == []
    assert [text for text in host.faults.informed if "high watermark" in text] == []


@pytest.mark.parametrize("stop", [stopped, killed])
class TestOneReplica:
    def test_the_last_segment_is_not_there(self, stop: object) -> None:
        files = stop()  # type: ignore[operator]
        last = logs_of(files)[-1]
        log = taken_up_alone(without_files(files, lambda path: path == last))
        assert min(lost(log)) == int(last.rpartition("/")[2][:20])

    def test_the_last_segment_is_empty(self, stop: object) -> None:
        files = stop()  # type: ignore[operator]
        taken_up_alone(cut_short(files, logs_of(files)[-1], 0))

    def test_the_last_segment_is_cut(self, stop: object) -> None:
        files = stop()  # type: ignore[operator]
        taken_up_alone(cut_short(files, logs_of(files)[-1], 100))

    def test_a_segment_in_the_middle_ends_inside_a_batch(self, stop: object) -> None:
        files = stop()  # type: ignore[operator]
        path = logs_of(files)[1]
        log = taken_up_alone(cut_short(files, path, len(files[path]) - 10))
        assert len(lost(log)) == 1

    def test_a_segment_in_the_middle_is_not_there(self, stop: object) -> None:
        files = stop()  # type: ignore[operator]
        path = logs_of(files)[1]
        log = taken_up_alone(without_files(files, lambda found: found == path))
        assert min(lost(log)) == int(path.rpartition("/")[2][:20])

    def test_garbage_in_the_middle_of_what_was_synced_hides_nothing_behind_it(self, stop: object) -> None:
        files = stop()  # type: ignore[operator]
        path = logs_of(files)[-2]
        data = bytearray(files[path])
        data[8:12] = b"\x7f\xff\xff\xff"
        index = path.replace(".log", ".index")
        manager, _ = started(without_files(files | {path: bytes(data)}, lambda found: found == index))
        log = taken_up(manager)
        check_named(log)
        assert len(lost(log)) == 1


class TestAfterACleanStop:
    def test_the_first_segment_is_not_there(self) -> None:
        files = stopped()
        first = logs_of(files)[0]
        log = taken_up_alone(without_files(files, lambda path: path == first))
        assert min(lost(log)) == 0
        assert log.log_start_offset == 0

    def test_all_files_of_a_segment_are_not_there(self) -> None:
        files = stopped()
        stem = logs_of(files)[1].removesuffix(".log")
        taken_up_alone(without_files(files, lambda path: path.startswith(stem)))

    def test_a_whole_batch_at_the_end_of_a_middle_segment_is_not_there(self) -> None:
        files = stopped()
        path = logs_of(files)[1]
        size = int.from_bytes(files[path][8:12], "big") + 12
        taken_up_alone(cut_short(files, path, len(files[path]) - size))

    def test_the_partition_s_directory_is_not_there(self) -> None:
        files = without_files(stopped(), lambda path: path.startswith(f"{ROOT}/{DAMAGED}/"))
        manager, host = started(files)
        assert manager.previous_broker_epoch == NO_BROKER_EPOCH
        log = taken_up(manager)
        assert [text for text, _ in host.faults.reported if text.startswith("orders-0 is damaged: 40 offsets are lost")]
        check_named(log)
        assert lost(log) == set(range(40))


def test_a_wrong_recovery_point_alone_is_no_loss() -> None:
    files = stopped()
    path = f"{ROOT}/recovery-point-offset-checkpoint"
    manager, host = started(files | {path: files[path].replace(b"orders 0 40", b"orders 0 90")})
    assert manager.damaged.waiting == set()
    assert host.faults.reported == []
    assert any("checkpoint is treated as wrong" in text for text in host.faults.informed)
    assert taken_up(manager).log_end_offset == 40


def test_reads_of_what_was_lost_name_the_range() -> None:
    files = stopped()
    first = logs_of(files)[0]
    manager, _ = started(without_files(files, lambda path: path == first))
    log = taken_up(manager)
    with pytest.raises(RequestFailed) as caught:
        log.read(0, 1000, up_to=40)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert f"continue at offset {log.segments.bases[0]}" in str(caught.value)


@pytest.mark.parametrize("stop", [stopped, killed])
def test_another_replica_leads_so_the_log_is_cut_where_the_first_offset_is_lost(stop: object) -> None:
    files = stop()  # type: ignore[operator]
    path = logs_of(files)[1]
    manager, host = started(cut_short(files, path, len(files[path]) - 10))
    log = manager.get(DAMAGED)
    assert log is not None
    assert log.losses.damage is not None
    first_lost = log.losses.damage.holes[0].start
    manager.damaged.truncate(DAMAGED)
    assert log.log_end_offset == first_lost
    assert log.holes == ()
    write(log, 40 - first_lost, epoch=1)
    manager.shutdown(8)
    again, host = started(files_in(host.disk, ROOT))
    assert host.faults.reported == []
    assert again.previous_broker_epoch == 8
    assert sorted(readable(taken_up(again))) == list(range(40))
