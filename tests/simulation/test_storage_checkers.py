"""Planted mistakes in what a log keeps twice, each found by the comparison of its files, and logs that pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from tests.support.log_world import LogWorld

from barnabas.common.log_config import LogConfig
from barnabas.records.batch import encode_end_txn_marker
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.faulty_disk import FaultyDisk, FaultyFile
from barnabas.simulation.host import VirtualTime
from barnabas.simulation.log_comparison import Checkpoints, wrong_log
from barnabas.simulation.log_files import SavedProducer
from barnabas.simulation.log_rules import Producer, ProducerDict, wrong_producers
from barnabas.simulation.scenario import Run, Settings, run
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.storage_checkers import StorageFiles
from barnabas.simulation.worlds.replication_explorer import explore
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.index import OffsetIndex, TimeIndex
from barnabas.storage.log import Log, Origin
from barnabas.storage.producer_entries import AppendedBatch, ProducerEntry
from barnabas.storage.producer_snapshots import ProducerSnapshotFiles
from barnabas.storage.recovery import recovery
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import TransactionIndex

_NOTHING = Checkpoints(0, 0, 0)
_SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=0, segment_index_bytes=400)
Plant = Callable[[pytest.MonkeyPatch], None]


def worked_on() -> LogWorld:
    """Returns a log with several segments, epochs, producers, transactions, a truncation, a sync and a restart."""
    disk = FaultyDisk(Random(1), VirtualTime(), lambda duration_us: None)
    world = LogWorld(_SMALL, disk)
    random, sequences = Random(5), dict.fromkeys(range(3), 0)
    for turn in range(60):
        producer, epoch = random.randrange(3), turn // 15
        stamps = [world.wall_ms + random.randrange(1000) for _ in range(random.randint(1, 3))]
        options: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
        world.append(*stamps, epoch=epoch, transactional=producer > 0, **options)
        sequences[producer] += len(stamps)
        if producer > 0 and random.random() < 0.4:
            end(world, producer, epoch, commits=random.random() < 0.4)
        if turn == 40:
            world.log.flush()
            world.log.truncate_to(world.log.log_end_offset)
    world.log.flush()
    return world


def end(world: LogWorld, producer_id: int, epoch: int, *, commits: bool) -> None:
    marker = encode_end_txn_marker(
        commit=commits, coordinator_epoch=2, timestamp=world.wall_ms, producer_id=producer_id, producer_epoch=0
    )
    world.append_batch(marker, epoch, Origin.COORDINATOR)


def problem(world: LogWorld, said: Checkpoints = _NOTHING) -> str | None:
    assert isinstance(world.disk, FaultyDisk)
    return wrong_log(world.disk, world.wall_ms, world.log, said)


# -- planted mistakes


def positions_are_those_of_the_end(patch: pytest.MonkeyPatch) -> None:
    real = OffsetIndex.append
    patch.setattr(OffsetIndex, "append", lambda self, offset, position: real(self, offset, position + 1))


def times_name_the_next_offset(patch: pytest.MonkeyPatch) -> None:
    real = TimeIndex.maybe_append
    patch.setattr(TimeIndex, "maybe_append", lambda self, timestamp, offset: real(self, timestamp, offset + 1))


def the_last_time_is_left_out(patch: pytest.MonkeyPatch) -> None:
    def become_inactive(self: Segment) -> None:
        self.index.try_to_trim()
        self.time_index.try_to_trim()

    patch.setattr(Segment, "become_inactive", become_inactive)
    patch.setattr(Segment, "note", _note_without_times)


def _note_without_times(self: Segment, size_bytes: int, last_offset: int, max_timestamp: int, limits: object) -> None:
    self.size_bytes += size_bytes


def aborted_transactions_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionIndex, "append", lambda self, aborted: None)


def aborted_transactions_begin_later(patch: pytest.MonkeyPatch) -> None:
    real = TransactionIndex.append
    patch.setattr(TransactionIndex, "append", lambda self, t: real(self, t._replace(first_offset=t.first_offset + 1)))


def snapshots_miss_open_transactions(patch: pytest.MonkeyPatch) -> None:
    write = ProducerSnapshotFiles.write

    def mutated(self: ProducerSnapshotFiles, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
        write(self, offset, [entry for entry in entries if entry.txn_first_offset is None], sync=sync)

    patch.setattr(ProducerSnapshotFiles, "write", mutated)


def producers_keep_their_first_time(patch: pytest.MonkeyPatch) -> None:
    real = ProducerEntry.add

    def mutated(self: ProducerEntry, batch: AppendedBatch) -> None:
        before = self.last_timestamp
        real(self, batch)
        self.last_timestamp = before

    patch.setattr(ProducerEntry, "add", mutated)


def epochs_begin_one_later(patch: pytest.MonkeyPatch) -> None:
    real = LeaderEpochCache.assign
    patch.setattr(LeaderEpochCache, "assign", lambda self, epoch, start: real(self, epoch, start + 1))


def epochs_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderEpochCache, "persist", lambda self, end_offset=None: None)


def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FaultyFile, "sync", lambda self: None)


FOUND: dict[Plant, str] = {
    positions_are_those_of_the_end: "the offset index says",
    times_name_the_next_offset: "the time index says",
    the_last_time_is_left_out: "the time index ends with",
    aborted_transactions_are_not_noted: "is not in the index",
    aborted_transactions_begin_later: "the index says",
    snapshots_miss_open_transactions: ".snapshot: producer",
    producers_keep_their_first_time: "the log says",
    epochs_begin_one_later: "in memory, the epochs",
    epochs_are_not_saved: "in leader-epoch-checkpoint, the epochs",
    nothing_is_synced: "is not synced",
}


def test_a_log_that_says_the_same_twice_passes_after_each_kind_of_end() -> None:
    world = worked_on()
    assert len(world.log.segments) > 2
    assert world.files(".txnindex")
    assert world.files(".snapshot")
    assert problem(world) is None
    world.restart()
    assert problem(world) is None
    world.kill()
    assert problem(world) is None


@pytest.mark.parametrize("plant", FOUND, ids=lambda plant: plant.__name__)
def test_a_mistake_in_what_is_kept_twice_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = problem(worked_on())
    assert found is not None
    assert FOUND[plant] in found


def test_a_snapshot_that_a_power_failure_has_damaged_is_ignored() -> None:
    world = worked_on()
    offset = world.log.producers.snapshots.latest
    assert offset is not None
    path = world.log.producers.snapshots.path(offset)
    world.disk.write(path, world.disk.read(path)[:-9] + bytes(9))
    assert problem(world) is None


def test_checkpoints_beyond_what_the_log_has_are_found() -> None:
    world = worked_on()
    world.append(world.wall_ms)
    end_offset = world.log.log_end_offset
    found = problem(world, Checkpoints(end_offset, 0, 0))
    assert found is not None
    assert found.startswith(f"the recovery point of the checkpoint is {end_offset}, the batch at {end_offset - 1} is")
    assert "its checkpoint says 7" in (problem(world, Checkpoints(0, 7, 0)) or "")


# -- whole runs


def test_a_broker_alone_comes_back_with_less_than_it_had_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replication would mend the log: no acknowledged record is lost with three replicas."""
    real = recovery._Recovery.run

    def forgetful(self: recovery._Recovery, log_start_offset: int) -> int:
        end_offset = real(self, log_start_offset)
        active = self.segments.active
        if self._opening.clean or end_offset - 1 <= active.base_offset or "orders" not in active.directory:
            return end_offset
        return active.truncate_to(end_offset - 1) or end_offset

    monkeypatch.setattr(recovery._Recovery, "run", forgetful)
    kill = Fault(8_000, FaultKind.POWER, "broker2", duration_ms=1000, amount=2)
    outcome = run(Settings(1, Layout(brokers=3), faults_s=10, schedule=(kill,), operations=()))
    assert "a disk kept less than it must" in str(outcome.problems[0]), outcome.problems


def test_a_topic_that_syncs_each_append_and_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "flush", lambda self: None)
    kill = Fault(8_000, FaultKind.POWER, "broker2", duration_ms=1000, amount=2)
    outcome = run(Settings(1, Layout(brokers=3), faults_s=10, schedule=(kill,), operations=()))
    assert "has flush.messages=1" in str(outcome.problems[0]), outcome.problems


@pytest.mark.parametrize("seed", range(301, 304))
def test_logs_of_replicas_that_roll_often_say_the_same_twice(seed: int) -> None:
    outcome = explore(seed, log_index_interval_bytes="0", log_roll_ms="700")
    assert outcome.problem is None, outcome


@pytest.mark.parametrize("seed", [1, 3])
def test_the_only_broker_is_compared_now_and_then_and_compacts_without_a_false_alarm(seed: int) -> None:
    """Each event of a single node concerns all nodes: they were compared after each, also amid a compaction."""
    simulated = Run(Settings(seed, Layout(1), draws_properties=True))
    outcome = simulated.execute()
    assert not outcome.failed, outcome.problems[0]
    files = next(each for each in simulated.checkers if isinstance(each, StorageFiles))
    assert 50 < files.compared < 300


def test_a_producer_that_expired_and_came_back_has_no_coordinator_epoch() -> None:
    known = Producer(
        0, 0, 9, 0, timestamp=5_000, coordinator_epoch=2, marker_timestamp=1_000, txn_first_offset=9, seen=9
    )
    log = ProducerDict(0)
    log.producers[3] = known
    back = SavedProducer(3, 0, 0, 9, 0, 5_000, -1, 9)
    day_ms = 86_400_000
    assert wrong_producers({3: back}, log, 0, 1_000) is None
    assert wrong_producers({3: back}, log, 0, 1_000 - day_ms) is not None
    assert wrong_producers({3: back._replace(coordinator_epoch=1)}, log, 0, 1_000) is not None
