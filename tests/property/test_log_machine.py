"""The log against a plain list: append, roll, truncate, trim, retention, other settings, restart, kill, damage; all
ways to read it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.batches import NOW_MS
from tests.support.log_world import TINY, LogWorld, encode_records

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.records.batch import decode_batch, iter_headers
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN_FILE, offset_of

_TIMES = st.integers(NOW_MS - 2000, NOW_MS + 2000)
_PRODUCER = 7


@dataclass
class Batch:
    """The model's data about a batch in the log."""

    first: int
    last: int
    times: list[int]
    epoch: int
    size: int
    sequence: int | None

    @property
    def end(self) -> int:
        return self.last + 1


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = LogWorld(TINY)
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.epoch = 0

    @property
    def log(self):  # type: ignore[no-untyped-def]
        return self.world.log

    # -- what happens to it

    @rule(times=st.lists(_TIMES, min_size=1, max_size=5), value=st.binary(max_size=60), new_epoch=st.booleans())
    def append(self, times: list[int], value: bytes, new_epoch: bool) -> None:
        self.epoch += new_epoch
        self._append(encode_records(*times, value=value), times, None)

    @rule(count=st.integers(1, 3))
    def append_idempotent(self, count: int) -> None:
        sequence = self._next_sequence()
        times = [NOW_MS] * count
        batch = encode_records(*times, producer_id=_PRODUCER, producer_epoch=0, base_sequence=sequence)
        again = bytearray(batch)
        self._append(batch, times, sequence + count - 1)
        first, last = self.batches[-1].first, self.batches[-1].last
        repeated = self.world.append_batch(again, self.epoch)
        assert (repeated.duplicate, repeated.first_offset, repeated.last_offset) == (True, first, last)

    def _append(self, batch: bytearray, times: list[int], sequence: int | None) -> None:
        size = len(batch)
        info = self.world.append_batch(batch, self.epoch)
        assert info.first_offset == self.end
        assert info.last_offset == self.end + len(times) - 1
        self.batches.append(Batch(self.end, info.last_offset, times, self.epoch, size, sequence))
        self.end = info.last_offset + 1

    def _next_sequence(self) -> int:
        """Returns the sequence after the last one in the log, or after the one that the producer state still has after
        a trim.
        """
        entry = self.log.producers.producers.get(_PRODUCER)
        return 0 if entry is None else entry.last_sequence + 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        spanning = [batch for batch in self.batches if batch.first < offset <= batch.last]
        self._lose_from(spanning[0].first if spanning else offset)

    def _lose_from(self, offset: int) -> None:
        if offset < self.end:
            self.batches = [batch for batch in self.batches if batch.last < offset]
            self.end = offset
            self.start = min(self.start, offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.delete_records_before(offset)
        self.start = max(self.start, offset)

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """Retention takes whole segments, none with a younger record, none above the HW."""
        high_watermark = data.draw(st.integers(self.start, self.end))
        before = [(segment.base_offset, segment.size_bytes) for segment in self.log.segments]
        limit = NOW_MS + data.draw(st.integers(-2500, 2500))
        self.log.delete_old_segments(limit + self.log.config.retention_ms, high_watermark=high_watermark)
        kept = {segment.base_offset for segment in self.log.segments}
        ends = [base for base, _ in before[1:]] + [self.end]
        for (base, size), end in zip(before, ends, strict=True):
            newest = max((max(b.times) for b in self.batches if base <= b.first < end), default=-1)
            if base not in kept:
                assert size > 0
                assert newest < limit or end <= self.start
                assert end <= high_watermark
                self.start = max(self.start, end)
            else:
                break
        assert kept >= {base for base, _ in before if base >= min(kept)}

    @rule(
        segment_bytes=st.integers(600, 2000),
        interval_bytes=st.integers(0, 300),
        index_bytes=st.sampled_from([36, 60, 600]),
    )
    def configure(self, segment_bytes: int, interval_bytes: int, index_bytes: int) -> None:
        """The topic's settings change while the log is open; they count for what is written from now on."""
        self.world.config = self.log.config = replace(
            self.log.config,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval_bytes,
            segment_index_bytes=index_bytes,
        )

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def kill(self) -> None:
        self.world.kill()

    @precondition(lambda self: self.log.segments.active.size_bytes > 0)
    @rule(data=st.data(), how=st.sampled_from(["cut", "flip", "grow"]))
    def kill_and_damage(self, data: st.DataObject, how: str) -> None:
        """Cuts, changes or extends the bytes of the last segment: the intact prefix remains."""
        world, segment = self.world, self.log.segments.active
        base, size, path = segment.base_offset, segment.size_bytes, segment.log_path
        world.log.segments.release()
        content = bytearray(world.disk.read(path))
        place = data.draw(st.integers(0, size - 1))
        if how == "cut":
            del content[place:]
        elif how == "grow":
            content += data.draw(st.binary(min_size=1, max_size=150))
            place = size
        else:
            place = self._checked_byte(base, place)
            content[place] ^= data.draw(st.integers(1, 255))
        world.disk.write(path, content)
        world.open(clean=False, recovery_point=min(world.log.recovery_point, base), log_start_offset=self.start)
        position, survivor = 0, base
        for batch in self.batches:
            if batch.first >= base:
                position += batch.size
                if position > place:
                    break
                survivor = batch.end
        self._lose_from(max(survivor, base))
        if self.start > self.end:
            self.start = self.end
        if self.log.log_start_offset > self.start:
            # The log start offset was above the rest: the log begins again there.
            self.start = self.end = self.log.log_start_offset
            self.batches = []

    def _checked_byte(self, base: int, place: int) -> int:
        """Returns the next byte that the checksum, or the check of a header, covers: not the base offset or the leader
        epoch.
        """
        position = 0
        for batch in self.batches:
            if batch.first >= base:
                if position <= place < position + batch.size:
                    inside = place - position
                    return position + (inside if inside >= 16 else 16)
                position += batch.size
        return place

    # -- what it must say

    @invariant()
    def offsets_are_right(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.recovery_point <= self.end
        assert self.log.segments.bases == sorted(set(self.log.segments.bases))

    @invariant()
    def all_records_are_there(self) -> None:
        expected = [
            (batch.first + i, time)
            for batch in self.batches
            for i, time in enumerate(batch.times)
            if batch.first + i >= self.start
        ]
        assert [(record.offset, record.timestamp) for record in self.world.records()] == expected

    @rule(data=st.data(), max_bytes=st.integers(0, 900), min_one_batch=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one_batch: bool) -> None:
        offset = data.draw(st.integers(max(0, self.start - 2), self.end + 2))
        up_to = data.draw(st.sampled_from([self.end, *(b.first for b in self.batches if b.first >= self.start)]))
        if not self.start <= offset <= self.end:
            with pytest.raises(RequestFailed) as refused:
                self.log.read(offset, max_bytes, up_to=up_to, min_one_batch=min_one_batch)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            return
        found = self.log.read(offset, max_bytes, up_to=up_to, min_one_batch=min_one_batch).data
        wanted = [b for b in self.batches if b.last >= offset and b.last < up_to]
        headers = [header for _, header in iter_headers(memoryview(found))]
        assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers] == [
            (b.first, b.last, b.epoch) for b in wanted[: len(headers)]
        ]
        if not wanted:
            assert found == b""
        elif wanted[0].size > max_bytes:
            assert [len(found), len(headers)] == ([wanted[0].size, 1] if min_one_batch else [0, 0])
        else:
            assert wanted[0].size <= len(found) <= max_bytes

    @rule(time=_TIMES)
    def look_up_a_time(self, time: int) -> None:
        records = [(t, b.first + i, b.epoch) for b in self.batches for i, t in enumerate(b.times)]
        expected = next((r for r in records if r[0] >= time and r[1] >= self.start), None)
        assert self.log.offset_for_timestamp(time) == expected

    @rule()
    def look_up_the_newest(self) -> None:
        records = [(t, -(b.first + i), b.epoch) for b in self.batches for i, t in enumerate(b.times)]
        # Trimmed records in a segment that is still there may hide the answer, never make a wrong one.
        found = self.log.max_timestamp()
        if self.log.segments.bases[0] == self.start and records:
            time, offset, epoch = max(r for r in records if -r[1] >= self.start) if self.end > self.start else (0, 0, 0)
            assert found == ((time, -offset, epoch) if self.end > self.start else None)
        elif found is not None:
            assert found in [(t, -o, e) for t, o, e in records]

    @rule(data=st.data())
    def look_up_an_epoch(self, data: st.DataObject) -> None:
        alive = [b for b in self.batches if b.last >= self.start]
        for batch in alive:
            assert self.log.epoch_at(max(batch.first, self.start)) == batch.epoch
        if alive:
            epoch = data.draw(st.sampled_from([b.epoch for b in alive]))
            later = [b.first for b in alive if b.epoch > epoch]
            found, end = self.log.end_offset_for_epoch(epoch)
            assert found == epoch
            assert end == (later[0] if later else end)
            assert max(b.end for b in alive if b.epoch == epoch) <= end <= self.end

    @rule()
    def producers_are_known(self) -> None:
        mine = [b for b in self.batches if b.sequence is not None and b.last >= self.start]
        entry = self.log.producers.producers.get(_PRODUCER)
        if mine:
            assert entry is not None
            assert entry.last_sequence == mine[-1].sequence

    @rule()
    def indexes_are_sound(self) -> None:
        """Each entry names a batch after a clean shutdown, and the last time entry the largest timestamp."""
        self.world.restart()
        for name in self.world.files(".log"):
            base = offset_of(name)
            assert base is not None
            data = self.world.disk.read(self.world.path(name))
            starts = dict(iter_headers(memoryview(data)))
            index = self.world.disk.read(self.world.path(name.replace(".log", ".index")))
            entries = list(struct.iter_unpack(">ii", index))
            assert entries == sorted(set(entries))
            assert all(starts[at].last_offset == base + relative for relative, at in entries)
            times = list(
                struct.iter_unpack(">qi", self.world.disk.read(self.world.path(name.replace("log", "timeindex"))))
            )
            records = [r for at in starts for r in decode_batch(data, at)]
            assert [t for t, _ in times] == sorted({t for t, _ in times})
            for time, relative in times:
                assert max(r.timestamp for r in records if r.offset <= base + relative) == time
            if records:
                assert times[-1][0] == max(r.timestamp for r in records)
        assert not self.world.disk.exists(f"{self.world.root}/{CLEAN_SHUTDOWN_FILE}")

    @invariant()
    def descriptors_are_bounded(self) -> None:
        assert len(self.world.descriptors) <= 2


LogMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLogMachine = LogMachine.TestCase
