"""A log manager that works on a disk whose power can fail at any change, and checks of what must be found then.

`PowerWorld` does what producers, coordinators, followers and operators do, and records for each log what was written,
what is durable (below the recovery point of the log) and what was deleted. `check` opens what a failure would leave.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.support.clean_world import broker_config
from tests.support.log_ends import end_of
from tests.support.power_disk import PowerDisk

from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.records.batch import Record, decode_batch, encode_batch, encode_end_txn_marker
from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import MemoryHost
from barnabas.storage.file_faults import FileFaultKind
from barnabas.storage.log import Log, Origin
from barnabas.storage.log_manager import LogManager
from barnabas.storage.offline.verify import PartitionReport, check_directory, verify_partition

ROOT = "/data"
SETTINGS = {
    "log_dirs": ROOT,
    "log_segment_delete_delay_ms": "1000",
    "log_flush_offset_checkpoint_interval_ms": "2000",
    "log_flush_start_offset_checkpoint_interval_ms": "2000",
    "replica_high_watermark_checkpoint_interval_ms": "2000",
    "log_retention_check_interval_ms": "5000",
    "log_cleaner_dedupe_buffer_size": str(1 << 20),
}


@dataclass(frozen=True)
class Written:
    key: bytes | None
    value: bytes | None
    epoch: int
    producer_id: int
    last_sequence: int
    is_transactional: bool = False
    #: Whether a marker commits; None for a record that is not a marker.
    commits: bool | None = None


@dataclass
class Model:
    """One log, from its creation to its deletion."""

    topic_partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    written: dict[int, Written] = field(default_factory=dict)
    sure: set[int] = field(default_factory=set)
    #: The records that a truncation, which is not yet done, replaces.
    before: dict[int, Written] = field(default_factory=dict)
    start: int = 0
    is_deleted: bool = False

    @property
    def is_compacted(self) -> bool:
        return self.config.is_compacted

    @property
    def end(self) -> int:
        return max(self.written, default=self.start - 1) + 1


class PowerWorld:
    def __init__(self, disk: PowerDisk | None = None) -> None:
        self.disk = disk or PowerDisk()
        self.models: list[Model] = []
        self.sequences: dict[tuple[bytes, int], int] = {}
        self._count = 0
        self.start()

    # -- the broker

    def start(self) -> None:
        self.host = MemoryHost(disk=self.disk)
        self.manager = started(self.host)

    def stop_and_start(self) -> None:
        self.manager.shutdown(7)
        self._note_sure()
        self.start()
        self.take_up()

    def kill_and_start(self) -> None:
        """Restarts after the end of the process: what it wrote is in the page cache."""
        self.disk.locked.clear()
        self.start()
        self.take_up()

    def take_up(self) -> None:
        """Opens every log that is not deleted, as a broker does when the metadata names it."""
        for model in self.models:
            if not model.is_deleted:
                assert self.manager.get(model.topic_partition) is not None
                self._create(model)

    def _create(self, model: Model) -> None:
        self.manager.get_or_create(model.topic_partition, model.topic_id, model.config)

    def new(self, topic: str, topic_id: int, config: LogConfig) -> Model:
        model = Model(TopicPartition(topic, 0), bytes([topic_id]) * 16, config)
        self.models.append(model)
        self._create(model)
        return model

    def log(self, model: Model) -> Log:
        log = self.manager.get(model.topic_partition)
        assert log is not None
        assert log.topic_id == model.topic_id
        return log

    def wait(self, duration_ms: int) -> None:
        """Lets timers run: checkpoints, retention, flushes, compaction."""
        starts = {id(model): self.log(model) for model in self._live()}
        for model in self._live():
            if not model.is_compacted:
                model.sure = {o for o in model.sure if o >= self._retained_from(model)}
        self.host.time.run_for(duration_ms)
        for model in self._live():
            model.start = max(model.start, starts[id(model)].log_start_offset)
        self._note_sure()

    def _retained_from(self, model: Model) -> int:
        """Returns the offset from which records must stay: retention by size can delete all segments except the last
        ones.
        """
        log = self.log(model)
        return log.segments.active.base_offset if log.config.retention_bytes >= 0 else model.start

    def _live(self) -> list[Model]:
        return [model for model in self.models if not model.is_deleted]

    def _note_sure(self) -> None:
        for model in self._live():
            point = self.log(model).recovery_point if self.manager.get(model.topic_partition) else model.end
            model.sure |= {offset for offset in model.written if model.start <= offset < point}

    # -- writes

    def append(self, model: Model, *, epoch: int = 0, key: bytes | None = b"k", count: int = 1, **options: Any) -> None:
        log = self.log(model)
        first = log.log_end_offset
        self._count += 1
        value = b"value %d" % self._count
        producer_id = options.get("producer_id", -1)
        sequence = self.sequences.get((model.topic_id, producer_id), 0)
        if producer_id >= 0:
            options |= {"producer_epoch": 0, "base_sequence": sequence}
            self.sequences[model.topic_id, producer_id] = sequence + count
        now_ms = self.host.clock.wall_ms()
        batch = encode_batch([Record(i, now_ms, key, value, []) for i in range(count)], **options)
        for offset in range(first, first + count):
            model.written[offset] = Written(
                key, value, epoch, producer_id, sequence + count - 1, options.get("transactional", False)
            )
        log.append_as_leader(memoryview(batch), epoch, wall_ms=now_ms)
        self._note_sure()

    def end_transaction(self, model: Model, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        log, now_ms = self.log(model), self.host.clock.wall_ms()
        marker = encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, timestamp=now_ms, producer_id=producer_id, producer_epoch=0
        )
        (record,) = decode_batch(marker)
        model.written[log.log_end_offset] = Written(
            record.key, record.value, epoch, producer_id, -1, is_transactional=True, commits=commit
        )
        log.append_as_leader(memoryview(marker), epoch, wall_ms=now_ms, origin=Origin.COORDINATOR)
        self._note_sure()

    def truncate(self, model: Model, offset: int) -> None:
        model.before = {at: was for at, was in model.written.items() if at >= offset}
        model.written = {at: was for at, was in model.written.items() if at < offset}
        if model.is_compacted:
            # Older records of the keys that are truncated were removed by compaction.
            present = {at for at, _, _ in _contents(self.log(model))}
            model.written = {at: was for at, was in model.written.items() if at in present}
        model.sure &= set(model.written)
        self.log(model).truncate_to(offset)
        assert self.log(model).log_end_offset == offset
        model.before = {}

    def delete_records(self, model: Model, offset: int) -> None:
        model.start = offset
        model.sure = {at for at in model.sure if at >= offset}
        self.log(model).delete_records_before(offset)

    def flush(self, model: Model) -> None:
        self.log(model).flush()
        self._note_sure()

    def roll(self, model: Model) -> None:
        self.log(model).roll()
        self._note_sure()

    def delete(self, model: Model) -> None:
        model.is_deleted = True
        self.manager.delete(model.topic_partition)

    # -- checks

    @contextmanager
    def failing_everywhere(self, check: Callable[[], None]) -> Iterator[None]:
        """Calls `check` before every change of the disk."""
        self.disk.before_change = check
        try:
            yield
        finally:
            self.disk.before_change = lambda: None

    def check(self, fate: Fate, seed: int) -> None:
        """Opens what a power failure at this moment leaves, and compares it with the models."""
        found = self.disk.after_crash(fate, random.Random(seed))
        found.make_dirs(ROOT)
        host = MemoryHost(disk=found)
        manager = started(host)
        assert host.faults.reported == [], host.faults.reported
        assert manager.offline_directories == set()
        for topic_partition in dict.fromkeys(model.topic_partition for model in self.models):
            self._check_partition(manager.get(topic_partition), topic_partition)
        ends = {log.topic_partition: _contents(log) for log in manager}
        manager.shutdown(1)
        empty = [log.directory for log in manager if log.log_start_offset == log.log_end_offset]
        faults = faults_on(found, empty)
        assert faults == [], faults
        again = started(MemoryHost(disk=found))
        assert {log.topic_partition: _contents(log) for log in again} == ends, "the log has changed by a clean shutdown"

    def _check_partition(self, log: Log | None, topic_partition: TopicPartition) -> None:
        candidates = [model for model in self.models if model.topic_partition == topic_partition]
        owed = next((model for model in candidates if model.sure and not model.is_deleted), None)
        if log is None:
            assert owed is None, f"{topic_partition} is gone"
            return
        if log.topic_id == ZERO_UUID:
            assert owed is None, f"{topic_partition} has lost its id"
            assert log.size_bytes == 0
            return
        model = next(model for model in candidates if model.topic_id == log.topic_id)
        assert owed is None or owed is model, f"{topic_partition} is another topic"
        check_log(log, model)


def check_log(log: Log, model: Model) -> None:
    records = _contents(log)
    written = model.written | model.before
    for offset, key, value in records:
        was = (model.before.get(offset), model.written.get(offset))
        assert any(w is not None and (w.key, w.value) == (key, value) for w in was), f"not the record of {offset}"
    offsets = [offset for offset, _, _ in records]
    assert log.log_start_offset <= max(model.start, log.segments.bases[0])
    assert log.log_end_offset <= max(written, default=model.start - 1) + 1
    if model.is_compacted:
        _check_table(records, model)
    else:
        assert [o for o in sorted(model.sure) if o not in offsets] == [], "synced records are lost"
        _check_prefixes(log, offsets)
    for offset in offsets:
        # Records before the new log start offset can be back, but not their epochs.
        assert offset < model.start or log.epoch_at(offset) == written[offset].epoch, offset
    _check_producers(log, model, offsets)


def _check_prefixes(log: Log, offsets: list[int]) -> None:
    """Checks that each segment has a prefix of its records. A later segment's name or bytes can be durable before those
    of an earlier one, as with Kafka.
    """
    bases = [*log.segments.bases, log.log_end_offset + 1]
    for base, end in pairwise(bases):
        inside = [offset for offset in offsets if base <= offset < end]
        first = max(base, log.log_start_offset)
        assert inside == list(range(first, first + len(inside)))


def _check_table(records: list[tuple[int, bytes | None, bytes | None]], model: Model) -> None:
    """Checks that the newest durable record of each key exists, or a newer one."""
    found = {key: offset for offset, key, _ in records}
    for offset in model.sure:
        was = model.written[offset]
        if was.commits is None:
            assert found.get(was.key, -1) >= offset, f"the record at {offset} is lost"


def _check_producers(log: Log, model: Model, offsets: list[int]) -> None:
    last: dict[int, int] = {}
    begun: dict[int, int] = {}
    aborted: set[tuple[int, int]] = set()
    for offset in offsets:
        was = model.before.get(offset) or model.written[offset]
        if was.producer_id < 0:
            continue
        if was.commits is None:
            last[was.producer_id] = was.last_sequence
            if was.is_transactional:
                begun.setdefault(was.producer_id, offset)
        else:
            first = begun.pop(was.producer_id, None)
            if first is not None and not was.commits:
                aborted.add((was.producer_id, first))
    if model.is_compacted or offsets != list(range(offsets[0] if offsets else 0, log.log_end_offset)):
        return
    known = {producer_id: entry.last_sequence for producer_id, entry in log.producers.producers.items()}
    assert last.items() <= known.items(), (last, known)
    unstable = log.producers.first_undecided_offset
    if log.log_start_offset == 0:
        assert unstable == min(begun.values(), default=None)
    told = {entry[:2] for segment in log.segments for entry in segment.txn_index.entries()}
    assert aborted <= told, (aborted, told)


def _contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for _, view in log.batches(log.log_start_offset, 5000)
        for record in decode_batch(view)
        if record.offset >= log.log_start_offset
    ]


def faults_on(disk: MemoryDisk, empty: Sequence[str]) -> list[str]:
    """Returns what `barnabas log verify` would report, except an old torn snapshot, which is skipped when it is read,
    and unknown epochs of records that are all before the log start offset.
    """
    reports: dict[TopicPartition, PartitionReport] = {}
    for name in disk.list_dir(ROOT):
        if disk.is_dir(f"{ROOT}/{name}") and not name.endswith("-delete"):
            topic, _, number = name.rpartition("-")
            reports[TopicPartition(topic, int(number))] = verify_partition(disk, f"{ROOT}/{name}")
    faults = [fault for report in reports.values() for fault in report.faults]
    return [
        fault.text
        for fault in (*faults, *check_directory(disk, ROOT, reports))
        if fault.kind is not FileFaultKind.PRODUCERS
        and not (fault.kind is FileFaultKind.EPOCHS and fault.path.rpartition("/")[0] in empty)
    ]


def started(host: MemoryHost) -> LogManager:
    manager = LogManager(host, broker_config(**SETTINGS))
    manager.start(high_watermark_of=end_of(manager))
    return manager


PLAIN = LogConfig(segment_bytes=500, index_interval_bytes=100, segment_index_bytes=120, flush_ms=4000)
SHORT = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=900, file_delete_delay_ms=1000)
COMPACTED = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=500,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=1000,
)
