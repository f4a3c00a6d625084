"""The answers of a log to readers, each computed again from the list of its batches."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.simulation.log_comparison import wrong_files
from barnabas.simulation.log_files import read_batches
from barnabas.simulation.log_rules import ProducerDict
from barnabas.simulation.worlds.log_copy import LogCopy, Written
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log_reads import LogRead


class CheckedCopy(LogCopy):
    """A replica whose answers are compared with the list."""

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
        self.disk.cool(cold)
        try:
            read = self._load(None, offset, max_bytes, up_to, min_one)
        finally:
            self.disk.warm_up()
        return bytes(read.data), list(read.aborted)

    def _load(
        self, read: LogRead | ColdRead | None, offset: int, max_bytes: int, up_to: int, min_one: bool = True
    ) -> LogRead:
        """Continues a read until it is complete; None begins it."""
        for _ in range(30):
            if read is None:
                read = self.log.read_cached(offset, max_bytes, up_to=up_to, min_one_batch=min_one, with_aborted=True)
            if isinstance(read, LogRead):
                return read
            read.load()
            read = self.log.take(read)
        raise self.wrong(f"a read at {offset} does not end")

    def check_overtaken_read(self, offset: int, max_bytes: int, change: Callable[[], object]) -> None:
        """Changes the log while a read waits for the disk. The read gets what the log has after the change, or what it
        had before, if that is still there.
        """
        up_to, before = self.end, self._expected(offset, max_bytes, self.end, min_one=True)
        self.log.segments.release()
        self.log._tail_positions.clear()
        self.disk.cool(range(99))
        read = self.log.read_cached(offset, max_bytes, up_to=up_to, with_aborted=True)
        self.disk.warm_up()
        if self._world.random.random() < 0.5 and isinstance(read, ColdRead):
            read.load()
        change()
        is_inside = self.start <= offset <= self.end
        try:
            found = bytes(self._load(read, offset, max_bytes, up_to).data)
        except RequestFailed as refused:
            if is_inside or refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self.wrong(f"a read at {offset} is refused with {refused.code} after a change") from refused
            return
        after = self._expected(offset, max_bytes, up_to, min_one=True)
        kept = {written.first for written in self.batches}
        is_kept = is_inside and all(batch.base_offset in kept for batch in read_batches(before))
        if found != after and not (found == before and is_kept):
            raise self.wrong(f"a read at {offset} returns {len(found)} bytes, which the log does not have any more")

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
