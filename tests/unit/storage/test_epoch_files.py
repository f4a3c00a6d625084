"""Leader epochs written in the background: what is on disk when, and that the recovery point never overtakes it."""

from __future__ import annotations

from tests.support.batches import NOW_MS
from tests.support.log_world import PARTITION, TOPIC_ID, encode_records

from barnabas.common.config import BrokerConfig
from barnabas.common.log_config import LogConfig
from barnabas.simulation.host import MemoryHost
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

CHECKPOINT = f"/logs/{PARTITION}/leader-epoch-checkpoint"


def started(host: MemoryHost) -> LogManager:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": "/logs",
    }
    manager = LogManager(host, BrokerConfig.from_properties(properties))
    manager.start(high_watermark_of=lambda _: None)
    return manager


def append(log: Log, epoch: int) -> None:
    log.append_as_leader(memoryview(encode_records(NOW_MS)), epoch, wall_ms=NOW_MS)


def log_of(manager: LogManager) -> Log:
    return manager.get_or_create(PARTITION, TOPIC_ID, LogConfig())


def test_an_epoch_with_records_is_on_disk_soon_and_one_without_is_not_written() -> None:
    host = MemoryHost()
    log = log_of(started(host))
    log.assign_epoch(3, 0)
    host.time.run_for(20_000)
    assert not host.disk.exists(CHECKPOINT)
    append(log, 3)
    assert not host.disk.exists(CHECKPOINT)
    host.time.run_for(6_000)
    assert host.disk.read(CHECKPOINT) == b"0\n1\n3 0\n"
    append(log, 4)
    host.time.run_for(1_000)
    assert host.disk.read(CHECKPOINT) == b"0\n2\n3 0\n4 1\n"


def test_the_recovery_point_does_not_move_past_an_epoch_that_is_not_on_disk() -> None:
    host = MemoryHost()
    log = log_of(started(host))
    append(log, 3)
    append(log, 5)
    log.flush()
    assert log.recovery_point == 2
    assert host.disk.read(CHECKPOINT) == b"0\n2\n3 0\n5 1\n"


def test_a_stop_in_order_writes_epochs_of_records_and_no_others() -> None:
    host = MemoryHost()
    manager = started(host)
    log = log_of(manager)
    append(log, 3)
    log.assign_epoch(8, 1)
    manager.shutdown(1)
    assert host.disk.read(CHECKPOINT) == b"0\n2\n3 0\n8 1\n"
    again = started(MemoryHost(disk=host.disk))
    log = log_of(again)
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0)]
    log.assign_epoch(9, 1)
    before = host.disk.read(CHECKPOINT)
    again.shutdown(1)
    assert host.disk.read(CHECKPOINT) == before, "nothing was written in the epochs that differ"


def test_a_job_that_ends_after_the_log_was_cut_does_not_bring_epochs_back() -> None:
    host = MemoryHost()
    log = log_of(started(host))
    append(log, 3)
    append(log, 5)
    host.time.run_for(500)
    log.truncate_to(1)
    host.time.run_for(20_000)
    assert host.disk.read(CHECKPOINT) == b"0\n1\n3 0\n"
