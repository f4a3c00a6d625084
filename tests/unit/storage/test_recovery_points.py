"""F3: recovery points follow the ends of logs while the broker runs, by time and by bytes, one sync at a time in the
background; a start after a kill scans only later records.
"""

from __future__ import annotations

from tests.support.damage import files_in
from tests.support.damaged_world import CONFIG, DAMAGED, ROOT, SOUND, TOPIC_ID, started, taken_up, write
from tests.support.log_world import encode_records

from barnabas.common.log_config import LogConfig
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, read_offsets
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

ONE_SEGMENT = LogConfig(segment_bytes=1 << 30, retention_ms=-1)


def busy(manager: LogManager, records: int) -> Log:
    log = manager.get_or_create(DAMAGED, TOPIC_ID, ONE_SEGMENT)
    write(log, records)
    return log


def checkpointed(host: MemoryHost) -> int:
    return read_offsets(host.disk, f"{ROOT}/{RECOVERY_POINT_CHECKPOINT}").get(DAMAGED, 0)


def test_by_time() -> None:
    manager, host = started(unsynced_left=0)
    log = busy(manager, 100)
    host.time.run_for(50_000)
    assert log.recovery_point == 0
    host.time.run_for(20_000)
    assert log.recovery_point == 100
    assert checkpointed(host) == 100
    assert log.unsynced_bytes == 0
    write(log, 7)
    assert 0 < log.unsynced_bytes < log.size_bytes / 2


def test_by_bytes() -> None:
    manager, host = started(unsynced_left=0, barnabas_log_unsynced_bytes_max="2000")
    log = busy(manager, 10)
    host.time.run_for(20_000)
    assert log.recovery_point == 0
    write(log, 40)
    host.time.run_for(6_000)
    assert log.recovery_point == 50
    assert checkpointed(host) == 50


def test_the_log_that_has_most_comes_first_and_little_is_left() -> None:
    manager, host = started(unsynced_left=5_000)
    large, small = busy(manager, 200), manager.get_or_create(SOUND, TOPIC_ID, CONFIG)
    write(small, 5)
    host.time.run_for(70_000)
    assert large.recovery_point == 200
    assert small.recovery_point == 0, "it is scanned in no time"


def test_a_start_after_a_kill_scans_what_came_since() -> None:
    manager, host = started(unsynced_left=0)
    log = busy(manager, 100)
    host.time.run_for(70_000)
    write(log, 3)
    files = files_in(host.disk, ROOT)
    path = f"{ROOT}/{DAMAGED}/{0:020d}.log"
    rotten = bytearray(files[path])
    rotten[90] ^= 1  # a synced position: recovery does not read it, let alone truncate there
    again, _ = started(files | {path: bytes(rotten)})
    assert taken_up(again).log_end_offset == 103


def test_no_sync_is_asked_for_where_the_key_says_so() -> None:
    manager, host = started(unsynced_left=0, barnabas_log_unsynced_bytes_max="0")
    log = busy(manager, 100)
    host.time.run_for(200_000)
    assert log.recovery_point == 0


def test_a_follower_of_a_compacted_log_begins_a_segment_above_its_leo() -> None:
    manager, host = started(unsynced_left=0)
    log = manager.get_or_create(DAMAGED, TOPIC_ID, LogConfig(segment_ms=1_000, retention_ms=-1))
    log.append_as_follower(encode_records(1_000, base_offset=0))
    log.append_as_follower(encode_records(900_000, base_offset=40))
    assert [segment.base_offset for segment in log.segments] == [0, 40]
    host.time.run_for(10)
    assert log.recovery_point == 1
    host.time.run_for(70_000)
    assert log.recovery_point == log.log_end_offset == 41
