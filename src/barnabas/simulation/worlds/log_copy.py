"""A replica of a log in a small world, and the list of its batches."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Final, NamedTuple, Protocol

from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.log_files import Batch, read_batches
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.log import Log, Origin
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.segments import LogServices

#: The ids of the producers; all but the first one write transactions.
PRODUCERS: Final = (7, 8, 9)
NEVER: Final = 1 << 62
_PARTITION: Final = TopicPartition("orders", 0)
_TOPIC_ID: Final = bytes(range(16))
#: The bytes of a batch after its leader epoch, which a log leaves as they are.
_EPOCH_END: Final = 16


class Written(NamedTuple):
    """A batch of the list: what the log must return, and the timestamps of its records."""

    data: bytes
    batch: Batch
    times: list[int]

    @property
    def first(self) -> int:
        return self.batch.base_offset

    @property
    def last(self) -> int:
        return self.batch.last_offset


class CoolingDisk(MemoryDisk):
    """A disk whose reads sometimes have to wait."""

    def cool(self, reads: range) -> None:
        """Makes these of the next reads wait, counted from 0."""
        calls = count()
        self.is_cold = lambda *_: next(calls) in reads

    def warm_up(self) -> None:
        """Keeps everything in memory again."""
        self.is_cold = None


class Setting(Protocol):
    """The world of the copies: its clock, its draws, and the settings of the topic."""

    @property
    def random(self) -> Random: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def wall_ms(self) -> int: ...


class LogCopy:
    """A replica: a log on a disk of its own, and the list. Changes are made in both."""

    def __init__(self, world: Setting, root: str) -> None:
        self._world = world
        self._directory = f"{root}/{_PARTITION}"
        self.disk = CoolingDisk()
        self.disk.make_dirs(self._directory)
        self.batches: list[Written] = []
        #: (epoch, first offset).
        self.epochs: list[tuple[int, int]] = []
        self.start = self.end = self.high_watermark = 0
        self.log: Log

    def wrong(self, text: str) -> Violation:
        return Violation(f"one log: {self._directory}: {text}")

    def open(self, *, clean: bool, recovery_point: int = 0) -> None:
        world = self._world
        services = LogServices(self.disk, lambda: world.wall_ms, lambda bound: 0, Descriptors(2))
        opening = Opening(
            self._directory,
            _PARTITION,
            world.config,
            _TOPIC_ID,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            high_watermark=self.high_watermark,
        )
        self.log = open_log(services, opening)
        # An epoch that begins at the end has no records, and is assigned again.
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    # -- changes

    def next_sequence(self, producer: int) -> int:
        entry = self.log.producers.producers.get(producer)
        return 0 if entry is None else entry.last_sequence + 1

    def open_transactions(self) -> set[int]:
        return {producer for producer in PRODUCERS if self._begun().get(producer) is not None}

    def _begun(self) -> dict[int, int | None]:
        """Returns the first offset of the open transaction of each producer."""
        begun: dict[int, int | None] = {}
        for _, batch, _ in self.batches:
            if batch.marker is not None:
                begun[batch.producer_id] = None
            elif batch.is_transactional and begun.get(batch.producer_id) is None:
                begun[batch.producer_id] = batch.base_offset
        return begun

    def append(self, batch: bytearray, times: list[int], origin: Origin, epoch: int) -> None:
        sent = bytes(batch)
        info = self.log.append_as_leader(memoryview(batch), epoch, wall_ms=self._world.wall_ms, origin=origin)
        found = (info.first_offset, info.last_offset, info.duplicate, info.log_start_offset, info.max_timestamp)
        wanted = (self.end, self.end + len(times) - 1, False, self.start, max(times))
        if found != wanted or bytes(batch[_EPOCH_END:]) != sent[_EPOCH_END:]:
            raise self.wrong(f"an append says {found} instead of {wanted}")
        self._add(bytes(batch), times, epoch)
        self._check_flushed()
        if batch and origin is Origin.CLIENT and self.batches[-1].batch.producer_id >= 0:
            again = self.log.append_as_leader(memoryview(bytearray(sent)), epoch, wall_ms=self._world.wall_ms)
            if (again.duplicate, again.first_offset, again.last_offset) != (True, *wanted[:2]):
                raise self.wrong(f"the repeated batch at {wanted[0]} is answered with {again}")

    def _add(self, data: bytes, times: list[int], epoch: int) -> None:
        (batch,) = read_batches(data)
        if (batch.base_offset, batch.epoch) != (self.end, epoch):
            raise self.wrong(f"the batch at {self.end} of epoch {epoch} has {batch.base_offset}, {batch.epoch}")
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs = [*(entry for entry in self.epochs if entry[1] < self.end), (epoch, self.end)]
        self.batches.append(Written(data, batch, times))
        self.end = batch.last_offset + 1

    def append_from(self, leader: LogCopy, batches_max: int) -> None:
        """Appends what a fetch from the leader returns: batches that follow the end, the last one possibly torn."""
        wanted = [written for written in leader.batches if written.first >= self.end][:batches_max]
        if not wanted or wanted[0].first != self.end:
            return
        data = b"".join(written.data for written in wanted)
        torn = data + wanted[0].data[:20]
        info = self.log.append_as_follower(torn)
        found = None if info is None else (info.first_offset, info.last_offset, info.max_timestamp)
        newest = max(written.batch.max_timestamp for written in wanted)
        if found != (wanted[0].first, wanted[-1].last, newest):
            raise self.wrong(
                f"an append of a follower says {found}, it is {(wanted[0].first, wanted[-1].last, newest)}"
            )
        for written in wanted:
            self._add(written.data, written.times, written.batch.epoch)
        self._check_flushed()
        if self.log.append_as_follower(wanted[0].data[:20]) is not None:
            raise self.wrong("a torn batch is appended")

    def _check_flushed(self) -> None:
        """Checks that fewer than `flush.messages` records wait for a sync after an append."""
        log = self.log
        waiting, limit = self.end - log.recovery_point, log.config.flush_messages
        if waiting >= limit:
            raise self.wrong(f"{waiting} records are not synced, flush.messages is {limit}")

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        if offset >= self.end:
            return
        # A batch that spans the offset goes as a whole.
        self.end = min([offset, *(written.first for written in self.batches if written.last >= offset)])
        self.batches = [written for written in self.batches if written.last < offset]
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.start = min(self.start, self.end)
        self.high_watermark = min(self.high_watermark, self.end)

    def empty(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.start = self.end = self.high_watermark = offset
        self.batches, self.epochs = [], []

    def delete_records(self, offset: int) -> None:
        bases, is_above = list(self.log.segments.bases), offset > self.start
        self.log.delete_records_before(offset)
        self.begin_at(offset)
        kept = [base for base, end in zip(bases, [*bases[1:], NEVER], strict=True) if end > offset or not is_above]
        if list(self.log.segments.bases) not in (kept, [self.end]):
            raise self.wrong(f"of the segments {bases} before {offset} there are {self.log.segments.bases}")
        self._forget_deleted()

    def begin_at(self, offset: int) -> None:
        if offset <= self.start:
            return
        self.start = offset
        before = [entry for entry in self.epochs if entry[1] <= offset]
        if before:
            self.epochs = [(before[-1][0], offset), *(entry for entry in self.epochs if entry[1] > offset)]
        self.high_watermark = max(self.high_watermark, offset)

    def retain(self) -> None:
        """Deletes old segments, and computes from the list which ones."""
        log, config, now_ms = self.log, self.log.config, self._world.wall_ms
        bases = list(log.segments.bases)
        inside = [self._inside(base) for base in bases]
        sizes = [sum(len(written.data) for written in each) for each in inside]
        ends = [*bases[1:], self.end]
        gone = 0
        while gone < len(bases):
            newest = max((written.batch.max_timestamp for written in inside[gone]), default=None)
            is_old = newest is not None and 0 <= config.retention_ms < now_ms - newest
            is_surplus = 0 <= config.retention_bytes <= sum(sizes[gone + 1 :])
            is_before = ends[gone] <= self.start and gone + 1 < len(bases)
            if not (is_old or is_surplus or is_before) or (not inside[gone] and gone + 1 == len(bases)):
                break
            gone += 1
        while gone and ends[gone - 1] > self.high_watermark:
            gone -= 1
        if any(not each for each in inside[:-1]):
            log.delete_old_segments(now_ms, high_watermark=self.high_watermark)
        elif (deleted := log.delete_old_segments(now_ms, high_watermark=self.high_watermark)) != gone:
            raise self.wrong(f"retention deletes {deleted} of the segments {bases} instead of {gone}")
        self.begin_at(log.segments.bases[0])
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        self.batches = [written for written in self.batches if written.first >= self.log.segments.bases[0]]

    def _inside(self, base: int) -> list[Written]:
        """Returns the batches of the segment with this base offset."""
        later = [each for each in self.log.segments.bases if each > base]
        end = min(later, default=NEVER)
        return [written for written in self.batches if base <= written.first < end]

    def flush(self, *, in_background: bool) -> None:
        if not in_background:
            self.log.flush()
            if self.log.recovery_point != self.end:
                raise self.wrong(f"the recovery point is {self.log.recovery_point} after a flush, the LEO {self.end}")
            return
        before = self.log.recovery_point
        ends = [written.last + 1 for written in self.batches if written.last >= before]
        end = self._world.random.choice(ends) if ends else self.end
        work, succeeded = self.log.sync_job(end)
        work()
        if self._world.random.random() < 0.2 and end > self.start:
            self.truncate(end - 1)
            before = end = self.log.recovery_point
        succeeded()
        if self.log.recovery_point != max(before, end):
            raise self.wrong(f"a sync to {end} from {before} moves the recovery point to {self.log.recovery_point}")

    def restart(self) -> None:
        self.high_watermark = max(self.high_watermark, self.start)
        self.log.close(clean=True)
        self.open(clean=True, recovery_point=self.end)

    def kill(self) -> None:
        """The process ends: what it wrote is there; of what it did not sync, the end can be torn."""
        log = self.log
        log.segments.release()
        active = log.segments.active
        if self._world.random.random() < 0.3 and active.has_files:
            inside = [written for written in self._inside(active.base_offset) if written.first >= log.recovery_point]
            if inside and inside[-1].first >= self.start:
                data = self.disk.read(active.log_path)
                self.disk.write(active.log_path, data[: -self._world.random.randrange(1, len(inside[-1].data) + 1)])
                self.batches.pop()
                self.end = inside[-1].first
                self.high_watermark = min(self.high_watermark, self.end)
        self.open(clean=False, recovery_point=log.recovery_point)
