"""One log against a list of batches: each seed appends as leader and as follower, rolls, truncates, deletes records and
old segments, restarts cleanly and after a kill, and reads by offset, by time and by epoch, also data that is not in
memory.

The list knows the bytes of each batch, which it got back from nobody: what a log assigns (offsets, epochs) is decoded
by independent code. After each step LEO, log start offset, epochs, LSO and producers are those of the list. Every
answer to a reader is computed from the list; only the boundaries of segments are the log's own. Files are compared with
each other as `log_rules` describes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, encode_batch, encode_end_txn_marker
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.log_comparison import wrong_files
from barnabas.simulation.log_files import Batch, read_batches
from barnabas.simulation.log_rules import ProducerDict
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log import Log, Origin
from barnabas.storage.log_reads import LogRead
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.segments import LogServices

_NOW_MS: Final = 1_800_000_000_000
_PARTITION: Final = TopicPartition("orders", 0)
_TOPIC_ID: Final = bytes(range(16))
_PRODUCERS: Final = (7, 8, 9)
_STEPS: Final = 40
_NEVER: Final = 1 << 62
_EPOCH_AT, _EPOCH_END = 12, 16


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


class OneLog:
    """The run of one seed. `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"one log {seed}")
        self._name = "leader"
        self._wall_ms = _NOW_MS
        self._config = LogConfig(
            segment_bytes=random.choice((400, 700, 1500)),
            index_interval_bytes=random.choice((1, 100, 200)),
            segment_index_bytes=random.choice((36, 60, 120, 600)),
            segment_ms=random.choice((3_000, 604_800_000)),
            retention_ms=random.choice((-1, 4_000, 20_000)),
            retention_bytes=random.choice((-1, -1, 900)),
            flush_messages=random.choice((_NEVER, _NEVER, 1, 5)),
            max_message_bytes=380,
        )
        self._sequences = dict.fromkeys(_PRODUCERS, 0)
        self._epoch = 0
        self.leader = Copy(self, "/leader")
        self.follower = Copy(self, "/follower")
        self._copies = (self.leader, self.follower)

    @property
    def random(self) -> Random:
        return self._random

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def wall_ms(self) -> int:
        return self._wall_ms

    def run(self) -> None:
        with second_decisions().judging():
            for copy in self._copies:
                copy.open(clean=True)
            for _ in range(_STEPS):
                self._step()
                for copy in self._copies:
                    copy.check()
            for copy in self._copies:
                copy.restart()
                copy.check()
                copy.check_files()

    def _step(self) -> None:
        steps = (
            (self._append, 10),
            (self._follow, 5),
            (self._read, 8),
            (self._look_up, 8),
            (self._change_leader, 1),
            (self._truncate, 1),
            (self._delete_records, 1),
            (self._retain, 1),
            (self._restart, 2),
            (self._flush, 2),
            (self._roll, 1),
            (self._configure, 1),
        )
        self._wall_ms += self._random.choice((0, 1, 50, 1_000))
        (step,) = self._random.choices([step for step, _ in steps], [weight for _, weight in steps])
        step()

    def _any(self) -> Copy:
        return self._random.choice(self._copies)

    # -- writing

    def _append(self) -> None:
        for _ in range(self._random.choice((1, 1, 4))):
            self.leader.append(*self._new_batch(), self._epoch)

    def _new_batch(self) -> tuple[bytearray, list[int], Origin]:
        random = self._random
        producer = random.choice((None, None, *_PRODUCERS))
        at_ms = self._wall_ms + random.choice((-2_500, -5, 0, 0, 700))
        opened = self.leader.open_transactions()
        if producer in opened and random.random() < 0.6:
            marker = encode_end_txn_marker(
                commit=random.random() < 0.5,
                coordinator_epoch=0,
                timestamp=at_ms,
                producer_id=producer,
                producer_epoch=0,
            )
            return marker, [at_ms], Origin.COORDINATOR
        times = [at_ms + random.choice((0, 1, 300)) for _ in range(random.choice((1, 1, 3)))]
        records = [Record(i, time, b"k", b"v" * random.randrange(25)) for i, time in enumerate(times)]
        more: dict[str, Any] = {}
        if producer is not None:
            more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.leader.next_sequence(producer)}
            more["transactional"] = producer > _PRODUCERS[0]
        return encode_batch(records, codec=random.choice((0, 0, 1, 3)), **more), times, Origin.CLIENT

    def _follow(self) -> None:
        """The follower fetches: it truncates where its epochs end earlier at the leader, and appends what it lacks."""
        leader, follower = self.leader, self.follower
        if follower.start < leader.start and follower.end < leader.start:
            follower.empty(leader.start)
        follower.append_from(leader, self._random.choice((1, 2, 9)))
        if follower.start < leader.start <= follower.end:
            follower.delete_records(leader.start)

    def _change_leader(self) -> None:
        """The follower leads; the former leader loses what that one lacks."""
        if self.follower.end < self.leader.start or self.follower.start > self.leader.end:
            return
        self.leader, self.follower = self.follower, self.leader
        self._epoch += 1
        leader, follower = self.leader, self.follower
        if follower.end > leader.end:
            follower.truncate(leader.end)

    def _truncate(self) -> None:
        """The follower loses its last batches, and fetches them again."""
        first = self._random.choice([written.first for written in self.follower.batches[-6:]] or [self.follower.end])
        self.follower.truncate(max(self.follower.start, first + self._random.choice((0, 0, 1))))

    def _delete_records(self) -> None:
        leader = self.leader
        if leader.end > leader.start:
            leader.delete_records(self._random.randrange(leader.start, leader.end + 1))

    def _retain(self) -> None:
        self._any().retain()

    def _restart(self) -> None:
        copy = self._any()
        self._random.choice((copy.restart, copy.kill, copy.kill))()

    def _flush(self) -> None:
        self._any().flush(in_background=self._random.random() < 0.6)

    def _roll(self) -> None:
        self._any().log.roll()

    def _configure(self) -> None:
        self._config = replace(self._config, index_interval_bytes=self._random.choice((1, 60, 150)))
        for copy in self._copies:
            copy.log.config = self._config

    # -- reading

    def _read(self) -> None:
        for _ in range(4):
            copy = self._any()
            ends = [copy.end, copy.end, *(written.first for written in copy.batches[-8:])]
            offset = self._random.choice([copy.start - 1, copy.end + 1, *range(max(copy.start, 0), copy.end + 1)])
            max_bytes = self._random.choice((0, 1, 80, 200, 500, 5_000))
            copy.check_read(offset, max_bytes, self._random.choice(ends), self._random.random() < 0.7)

    def _look_up(self) -> None:
        for _ in range(3):
            copy = self._any()
            times = [time for written in copy.batches for time in written.times] or [_NOW_MS]
            copy.check_time(self._random.choice(times) + self._random.choice((-1, 0, 1)))
        copy.check_newest()
        copy.check_epochs(self._epoch)


class Copy:
    """One replica: a log on a disk of its own, and the list."""

    def __init__(self, world: OneLog, root: str) -> None:
        self._world = world
        self._directory = f"{root}/{_PARTITION}"
        self.disk = MemoryDisk()
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
        # What begins at the end has no records, and is assigned again.
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    # -- changes

    def next_sequence(self, producer: int) -> int:
        entry = self.log.producers.producers.get(producer)
        return 0 if entry is None else entry.last_sequence + 1

    def open_transactions(self) -> set[int]:
        return {producer for producer in _PRODUCERS if self._begun().get(producer) is not None}

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

    def append_from(self, leader: Copy, batches_max: int) -> None:
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
        if self.log.append_as_follower(wanted[0].data[:20]) is not None:
            raise self.wrong("a torn batch is appended")

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
        bases = list(self.log.segments.bases)
        self.log.delete_records_before(offset)
        self.begin_at(offset)
        kept = [base for base, end in zip(bases, [*bases[1:], _NEVER], strict=True) if end > offset]
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
        end = min(later, default=_NEVER)
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
            before = min(before, self.log.recovery_point)
            end = before
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

    # -- what a log says

    def check(self) -> None:
        log = self.log
        self.high_watermark = max(self.high_watermark, self.start)
        if self._world.random.random() < 0.5:
            self.high_watermark = self._world.random.randrange(self.high_watermark, self.end + 1)
        found = log.log_start_offset, log.log_end_offset
        if found != (self.start, self.end):
            raise self.wrong(f"start and end are {found}, expected {(self.start, self.end)}")
        if log.recovery_point > self.end or log.size_bytes != sum(len(written.data) for written in self.batches):
            raise self.wrong(f"recovery point {log.recovery_point} of {self.end}, {log.size_bytes} bytes")
        bases = list(log.segments.bases)
        if [written.first for written in self.batches if self._crosses(written, bases)]:
            raise self.wrong(f"a batch is in two of the segments {bases}")
        self._check_transactions()

    def _crosses(self, written: Written, bases: list[int]) -> bool:
        return any(written.first < base <= written.last for base in bases)

    def _check_transactions(self) -> None:
        begun = [first for first in self._begun().values() if first is not None]
        ended = []
        opened: dict[int, int] = {}
        for _, batch, _ in self.batches:
            if batch.marker is None and batch.is_transactional:
                opened.setdefault(batch.producer_id, batch.base_offset)
            elif batch.marker is not None and batch.producer_id in opened:
                first = opened.pop(batch.producer_id)
                if batch.base_offset >= self.high_watermark:
                    ended.append(first)
        stable = self.log.last_stable_offset(self.high_watermark)
        expected = min([*begun, *ended, self.high_watermark])
        if stable != expected and self.start == 0:
            raise self.wrong(f"the LSO is {stable} at HW {self.high_watermark}, it should be {expected}")

    def check_files(self) -> None:
        """Compares indexes, epochs and producers with the batches in the files."""
        self.log.flush()
        wrong = wrong_files(self.disk, self._world.wall_ms, self.log)
        if wrong is not None:
            raise self.wrong(wrong)

    def _expected(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> bytes:
        """Returns what a read gets: whole and torn batches of one segment, from the one with the offset on."""
        later = [written for written in self.batches if written.last >= offset]
        if not later or later[0].last >= up_to:
            return b""
        base = max(base for base in self.log.segments.bases if base <= later[0].first)
        inside = [written for written in self._inside(base) if written.last >= offset and written.last < up_to]
        first = len(inside[0].data)
        if first > max_bytes:
            return inside[0].data if min_one else b""
        return b"".join(written.data for written in inside)[:max_bytes]

    def check_read(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> None:
        is_inside = self.start <= offset <= self.end
        for read in (self._read_now, self._read_cached):
            try:
                found, aborted = read(offset, max_bytes, up_to, min_one)
            except RequestFailed as refused:
                if is_inside or refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise self.wrong(f"a read at {offset} is refused with {refused.code}") from refused
                continue
            if not is_inside:
                raise self.wrong(f"a read at {offset} is answered, the log is {self.start} to {self.end}")
            expected = self._expected(offset, max_bytes, up_to, min_one)
            if found != expected:
                sizes = f"{len(found)} bytes instead of {len(expected)}"
                raise self.wrong(f"a read at {offset} of {max_bytes} bytes up to {up_to} returns {sizes}")
            if self.start == 0 and aborted != (wanted := self._aborted(offset, found)):
                raise self.wrong(f"a read at {offset} returns the aborted transactions {aborted} instead of {wanted}")

    def _read_now(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> tuple[bytes, list[tuple[int, int]]]:
        read = self.log.read(offset, max_bytes, up_to=up_to, min_one_batch=min_one)
        return bytes(read.data), self.log.aborted_transactions(offset, read)

    def _read_cached(
        self, offset: int, max_bytes: int, up_to: int, min_one: bool
    ) -> tuple[bytes, list[tuple[int, int]]]:
        """Reads on a disk that has only a part of the data in memory."""
        random = self._world.random
        cold = random.choice((range(0), range(9), range(1), range(1, 2), range(2, 3), range(3, 5)))
        if random.random() < 0.4:
            self.log.segments.release()
            self.log._tail_positions.clear()
        calls = count()
        self.disk.is_cold = lambda *_: next(calls) in cold
        try:
            read: LogRead | ColdRead | None = None
            for _ in range(30):
                if read is None:
                    read = self.log.read_cached(
                        offset, max_bytes, up_to=up_to, min_one_batch=min_one, with_aborted=True
                    )
                if isinstance(read, LogRead):
                    return bytes(read.data), list(read.aborted)
                read.load()
                read = self.log.take(read)
        finally:
            self.disk.is_cold = None
        raise self.wrong(f"a read at {offset} does not end")

    def _aborted(self, offset: int, data: bytes) -> list[tuple[int, int]]:
        """Returns the aborted transactions with records in these data, in the order of their markers."""
        whole = read_batches(data)
        end = whole[-1].last_offset + 1 if whole else -1
        known = ProducerDict(0)
        for written in self.batches:
            known.add(written.batch)
        return [
            (producer, first)
            for producer, first, marker, _ in known.aborted
            if first is not None and marker >= offset and first < end
        ]

    def check_time(self, timestamp: int) -> None:
        expected = next(
            (
                (time, written.first + place, written.batch.epoch)
                for written in self.batches
                for place, time in enumerate(written.times)
                if time >= timestamp and written.first + place >= self.start
            ),
            None,
        )
        search = self.log.search_time(timestamp)
        if search.is_plain() and expected is not None:
            raise self.wrong(f"there is said to be no record from {timestamp}, there is {expected}")
        search.load()
        for found in (self.log.found(search), self.log.offset_for_timestamp(timestamp)):
            if found != expected:
                raise self.wrong(f"the first record from {timestamp} is said to be {found}, it is {expected}")

    def check_newest(self) -> None:
        if self.start != self.log.segments.bases[0]:
            return  # Deleted records in a segment that is still there can hide the answer.
        records = [
            (time, -written.first - place, written.batch.epoch)
            for written in self.batches
            for place, time in enumerate(written.times)
        ]
        newest = max(records, default=None)
        expected = None if newest is None else (newest[0], -newest[1], newest[2])
        search = self.log.search_time(None)
        search.load()
        for found in (self.log.found(search), self.log.max_timestamp()):
            if found != expected:
                raise self.wrong(f"the newest record is said to be {found}, it is {expected}")

    def check_epochs(self, latest: int) -> None:
        for epoch, first in self.epochs:
            later = [start for known, start in self.epochs if known > epoch]
            found = self.log.end_offset_for_epoch(epoch)
            if found != (epoch, later[0] if later else self.end):
                raise self.wrong(f"epoch {epoch} of {self.epochs} is said to end at {found}")
            if self.log.epoch_at(first) != epoch or (first > self.start and self.log.epoch_at(first - 1) == epoch):
                raise self.wrong(f"epoch {epoch} does not begin at {first}")
        if self.log.end_offset_for_epoch(latest + 1) != (-1, -1):
            raise self.wrong(f"epoch {latest + 1} is said to be known")
