"""The background work of one pass over a log: index the keys of its dirty part, then copy its segments without the
superseded records.

    index_keys    first dirty offset .. first uncleanable offset -> OffsetMap (as far as it fits)
    Copy          neighbouring segments -> one segment in `.cleaned` files, synced

Both are generators that yield every few hundred records, so that the work runs in slices in the background; between two
slices they assume nothing about the log. They use descriptors of their own, do not touch the log object, and only read
the log's files; an aborted pass leaves nothing but `.cleaned` files.

All input is checked. An impossible batch size ends the pass with RecordsRejected. A batch with a wrong checksum or
unreadable records is kept unchanged (`Unreadable`): its keys are not known, and its neighbours are compacted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Buffer, Disk
from barnabas.records.batch import BatchHeader, control_type, decode_batch, has_valid_crc, read_header
from barnabas.records.header import LEGACY_MIN_BYTES, LOG_OVERHEAD, NO_TIMESTAMP, corrupt
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import CLEANED_SUFFIX, LOG_SUFFIX
from barnabas.storage.compaction.offset_map import CleanedTransactions, OffsetMap
from barnabas.storage.compaction.record_filter import BatchDecision, KeptBatch, Retention, filter_batch, keys_of
from barnabas.storage.segment import RollLimits, Segment

#: The cost at which a slice of work ends, in bytes; each record counts as `_RECORD_COST` bytes in addition.
_SLICE_COST = 256 * 1024
_RECORD_COST = 1024
_RELATIVE_MAX = 0x7FFFFFFF

#: Yields the bytes read and written since the last yield.
Steps = Generator[int, None, None]


class SourceSegment(NamedTuple):
    """A segment as it was when the pass began, to be read from `position` on."""

    path: str
    base_offset: int
    size_bytes: int
    position: int = 0


class LastRecord(NamedTuple):
    """The last record of a producer: the offset where its last data ended, None if its last batch was a marker; and its
    epoch.
    """

    last_data_offset: int | None
    epoch: int


class Unreadable:
    """The batches that a pass could not read: their count, and the first one."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, source: SourceSegment, header: BatchHeader, why: str) -> None:
        self.count += 1
        self.first = self.first or f"offset {header.base_offset} in {source.path}: {why}"


@dataclass(frozen=True, slots=True)
class CopyRules:
    """The settings that all groups of a pass share."""

    limits: RollLimits
    wall_ms: int
    delete_retention_ms: int
    #: Magic 0 and 1: tombstones in segments last modified at or before this time are removed.
    legacy_horizon_ms: int
    #: The end of the pass: the batch before it stays, if only as a header, so that the offset is not lost.
    end_offset: int
    buffer_bytes: int
    unreadable: Unreadable


class CleanedSegment(Segment):
    """A segment that is not yet part of the log: its files have an additional suffix."""

    __slots__ = ()

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        super().__init__(disk, directory, base_offset, 0, Descriptors(1))
        self.moved(directory)

    def path(self, suffix: str) -> str:
        return super().path(suffix) + CLEANED_SUFFIX


def read_batches(
    disk: Disk, source: SourceSegment, buffer_bytes: int
) -> Iterator[tuple[bytes, int, BatchHeader, bool]]:
    """Yields (buffer, position in it, header, whether the checksum is valid) of each batch; each batch is complete in
    its buffer."""
    file = disk.open(source.path, read_only=True)
    try:
        position, buffer, start = source.position, b"", source.position
        while position < source.size_bytes:
            inside = position - start
            left = source.size_bytes - position
            if len(buffer) - inside < LOG_OVERHEAD:
                start, inside = position, 0
                buffer = file.read_at(position, min(left, buffer_bytes))
            size = LOG_OVERHEAD + int.from_bytes(buffer[inside + 8 : inside + LOG_OVERHEAD], "big", signed=True)
            if not LEGACY_MIN_BYTES <= size <= left:
                raise corrupt(f"a batch of {size} bytes where {left} are left, at byte {position} of {source.path}")
            if len(buffer) - inside < size:
                start, inside = position, 0
                buffer = file.read_at(position, min(left, max(size, buffer_bytes)))
                if len(buffer) < size:
                    raise corrupt(f"{source.path} ends before byte {position + size}")
            try:
                header = read_header(buffer, inside)
                intact = has_valid_crc(buffer, inside, header)
            except RecordsRejected as error:
                raise corrupt(f"byte {position} of {source.path}: {error}") from None
            yield buffer, inside, header, intact
            position += size
    finally:
        file.close()


def index_keys(
    disk: Disk,
    sources: Sequence[tuple[SourceSegment, int]],
    first_dirty: int,
    transactions: CleanedTransactions,
    offsets: OffsetMap,
    buffer_bytes: int,
) -> Steps:
    """Fills the map from these segments, each with its end offset, until it is full or all are read.

    At least one batch is read, however large, so that every pass advances.
    """
    cost = done = 0
    for source, end_offset in sources:
        for buffer, place, header, is_intact in read_batches(disk, source, buffer_bytes):
            if offsets.is_full and offsets.latest_offset >= first_dirty:
                yield done
                return
            if is_intact:
                with suppress(RecordsRejected):  # `Copy` reports the batch and keeps it
                    _index(buffer, place, header, first_dirty, transactions, offsets)
                if header.last_offset >= first_dirty:
                    offsets.reach(header.last_offset)
            done += header.size_bytes
            cost += header.size_bytes + header.record_count * _RECORD_COST
            if cost >= _SLICE_COST:
                yield done
                cost = done = 0
        offsets.reach(end_offset - 1)
    yield done


def _index(
    buffer: bytes,
    place: int,
    header: BatchHeader,
    first_dirty: int,
    transactions: CleanedTransactions,
    offsets: OffsetMap,
) -> None:
    if header.is_control:
        transactions.on_marker(header, _marker_kind(buffer, place, header))
    elif not transactions.on_data(header) and header.last_offset >= first_dirty:
        offsets.add(*keys_of(buffer, place, header, first_dirty))


def _marker_kind(buffer: bytes, place: int, header: BatchHeader) -> int | None:
    """Returns the type of a control batch; None if an earlier pass emptied it."""
    if not header.record_count:
        return None
    records = decode_batch(memoryview(buffer)[place : place + header.size_bytes])
    kind = control_type(records[0])
    return -1 if kind is None else kind


class Copy:
    """The copy of neighbouring segments into one compacted segment in `.cleaned` files; at the end, `end_offset` is the
    end of its last batch.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        sources: Sequence[SourceSegment],
        rules: CopyRules,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._sources = sources
        self._rules = rules
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self.base_offset = sources[0].base_offset
        self.end_offset = self.base_offset
        self._parts: list[Buffer] = []
        self._parts_bytes = 0

    def steps(self) -> Steps:
        disk, rules = self._disk, self._rules
        cleaned = CleanedSegment(disk, self._directory, self.base_offset)
        cleaned.create()
        cleaned.txn_index.clear()
        self._transactions.retained.clear()
        cost = done = 0
        try:
            for source in self._sources:
                retention = Retention(
                    self._offsets,
                    self._offsets.latest_offset,
                    rules.wall_ms,
                    rules.delete_retention_ms,
                    disk.modified_ms(source.path) > rules.legacy_horizon_ms,
                )
                for buffer, place, header, is_intact in read_batches(disk, source, rules.buffer_bytes):
                    kept = self._keep(source, retention, header, buffer, place, is_intact=is_intact)
                    done += header.size_bytes
                    cost += header.size_bytes + header.record_count * _RECORD_COST
                    if kept is not None:
                        self._put(cleaned, kept)
                        done += len(kept.data)
                    if cost >= _SLICE_COST:
                        yield done
                        cost = done = 0
            self._write(cleaned)
            for aborted in self._transactions.retained:
                cleaned.txn_index.append(aborted)
            cleaned.become_inactive()
            yield done
            cleaned.flush(with_indexes=True)
            disk.sync_dir(self._directory)
        finally:
            cleaned.release()
        yield 0

    def _keep(
        self,
        source: SourceSegment,
        retention: Retention,
        header: BatchHeader,
        buffer: bytes,
        place: int,
        *,
        is_intact: bool,
    ) -> KeptBatch | None:
        """Returns the part of a batch that compaction keeps; the whole batch if it is unreadable."""
        data = memoryview(buffer)[place : place + header.size_bytes]
        if not is_intact:
            self._rules.unreadable.add(source, header, "its checksum is wrong")
            # The header can be as wrong as the rest.
            is_near = self.end_offset <= header.base_offset <= self.base_offset + _RELATIVE_MAX
            return KeptBatch(data, header.base_offset if is_near else self.end_offset, NO_TIMESTAMP)
        try:
            return filter_batch(buffer, place, header, retention, self._decide(header, buffer, place))
        except RecordsRejected as rejected:
            self._rules.unreadable.add(source, header, rejected.message)
            return KeptBatch(data, header.last_offset, header.max_timestamp)

    def _decide(self, header: BatchHeader, buffer: bytes, place: int) -> BatchDecision:
        rules = self._rules
        is_control = header.is_control
        if is_control:
            idle = self._transactions.on_marker(header, _marker_kind(buffer, place, header))
            horizon_ms = header.delete_horizon_ms
            discard = idle and horizon_ms is not None and horizon_ms <= rules.wall_ms
        else:
            idle = False
            discard = self._transactions.on_data(header)
        keep_empty = header.next_offset == rules.end_offset
        if not keep_empty and header.producer_id >= 0:
            last = self._producers.get(header.producer_id)
            if last is not None:
                if last.last_data_offset is not None:
                    keep_empty = header.last_offset == last.last_data_offset
                else:
                    keep_empty = is_control and header.producer_epoch == last.epoch
        return BatchDecision(discard, keep_empty, idle)

    def _put(self, cleaned: CleanedSegment, kept: KeptBatch) -> None:
        self._parts.append(kept.data)
        self._parts_bytes += len(kept.data)
        cleaned.note(len(kept.data), kept.last_offset, kept.max_timestamp, self._rules.limits)
        self.end_offset = kept.last_offset + 1
        if self._parts_bytes >= self._rules.buffer_bytes:
            self._write(cleaned)

    def _write(self, cleaned: CleanedSegment) -> None:
        if self._parts:
            cleaned.file.append(b"".join(self._parts))
            self._parts.clear()
            self._parts_bytes = 0


def cleaned_files(disk: Disk, directory: str, base_offset: int) -> list[str]:
    """Returns the files that the copy of a group left, complete or not."""
    stem = f"{directory}/{base_offset:020d}"
    suffixes = (LOG_SUFFIX, ".index", ".timeindex", ".txnindex")
    return [path for suffix in suffixes if disk.exists(path := f"{stem}{suffix}{CLEANED_SUFFIX}")]
