"""Indexes and producer snapshots as text, as Apache Kafka's DumpLogSegments prints them (see `dump`).

Every index entry is looked up in the segment's log; mismatches are reported after all files. The searches are those of
Kafka, including how they treat preallocated zeros, so that the same bytes give the same complaints.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from barnabas.common.host import Disk
from barnabas.records.batch import decode_batch
from barnabas.records.checksum import crc32c
from barnabas.records.header import NO_TIMESTAMP
from barnabas.storage.checkpoints import INDEX_SUFFIX, LOG_SUFFIX, CheckpointError
from barnabas.storage.offline.dump_log import (
    UNLIMITED,
    DumpedBatches,
    DumpedFile,
    DumpFailed,
    DumpOptions,
    invalid_record,
    java_optional,
    java_order,
    open_existing,
)
from barnabas.storage.producer_snapshots import decode_snapshot
from barnabas.storage.read_window import Window

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")
_WARM_BYTES = 8192
_CORRUPT_INDEX = "org.apache.kafka.storage.internals.log.CorruptIndexException"
_SNAPSHOT_HEAD_BYTES = 6

Pairs = dict[str, list[tuple[int, int]]]


class _OffsetEntries:
    """The entries of an offset index file, including blank ones."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        whole = data[: len(data) - len(data) % _OFFSET_ENTRY.size]
        self.entries: list[tuple[int, int]] = [
            (base_offset + relative, position) for relative, position in _OFFSET_ENTRY.iter_unpack(whole)
        ]
        self._base_offset = base_offset

    def lookup(self, offset: int) -> int:
        """Returns the position from which to read `offset`. Searches the last entries first, as Kafka does."""
        count = len(self.entries)
        if count == 0:
            return 0
        first_hot = max(0, count - 1 - _WARM_BYTES // _OFFSET_ENTRY.size)
        if self.entries[first_hot][0] < offset:
            return self._search(offset, first_hot, count - 1)
        if self.entries[0][0] > offset:
            return 0
        return self._search(offset, 0, first_hot)

    def _search(self, offset: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) // 2
            found = self.entries[middle][0]
            if found == offset:
                return self.entries[middle][1]
            if found > offset:
                high = middle - 1
            else:
                low = middle
        return self.entries[low][1]


class IndexDump:
    """Prints `.index`, `.timeindex`, `.txnindex` and `.snapshot` files, one after the other."""

    __slots__ = ("_disk", "_err", "_mismatches", "_not_found", "_options", "_out", "_out_of_order", "_wrong_times")

    def __init__(
        self, disk: Disk, options: DumpOptions, out: Callable[[str], None], err: Callable[[str], None]
    ) -> None:
        self._disk = disk
        self._options = options
        self._out = out
        self._err = err
        self._mismatches: Pairs = {}
        self._wrong_times: Pairs = {}
        self._out_of_order: Pairs = {}
        self._not_found: Pairs = {}

    def dump_index(self, dumped: DumpedFile) -> None:
        base_offset = dumped.base_offset()
        log = open_existing(self._disk, dumped.sibling(LOG_SUFFIX), dumped.absolute_sibling(LOG_SUFFIX))
        try:
            data = self._read(dumped.path)
            index = _OffsetEntries(data, base_offset)
            if not index.entries:
                self._out(f"{dumped.path} is empty.\n")
            elif self._options.index_sanity_check:
                self._check_index(dumped, data, index.entries[-1][0])
            else:
                self._index_entries(dumped, index, Window(log))
        finally:
            log.close()

    def dump_time_index(self, dumped: DumpedFile) -> None:
        base_offset = dumped.base_offset()
        log = open_existing(self._disk, dumped.sibling(LOG_SUFFIX), dumped.absolute_sibling(LOG_SUFFIX))
        try:
            path = dumped.sibling(INDEX_SUFFIX)
            if not self._disk.exists(path):
                raise DumpFailed("java.lang.IllegalArgumentException", "Invalid max index size: -1")
            index = _OffsetEntries(self._disk.read(path), base_offset)
            data = self._read(dumped.path)
            whole = data[: len(data) - len(data) % _TIME_ENTRY.size]
            entries = [(timestamp, base_offset + relative) for timestamp, relative in _TIME_ENTRY.iter_unpack(whole)]
            if self._options.index_sanity_check:
                self._check_time_index(dumped, data, base_offset, entries)
            else:
                self._time_entries(dumped, entries, index, Window(log))
        finally:
            log.close()

    def dump_transactions(self, dumped: DumpedFile) -> None:
        dumped.base_offset()
        data = self._read(dumped.path)
        for fields in _ABORTED.iter_unpack(data[: len(data) - len(data) % _ABORTED.size]):
            version, producer_id, first_offset, last_offset, stable = fields
            if version > 0:
                raise DumpFailed(
                    "org.apache.kafka.common.KafkaException",
                    f"Unexpected aborted transaction version {version} in transaction index {dumped.absolute_path}, "
                    "current version is 0",
                )
            self._out(
                f"version: {version} producerId: {producer_id} firstOffset: {first_offset} "
                f"lastOffset: {last_offset} lastStableOffset: {stable}\n"
            )

    def dump_producers(self, dumped: DumpedFile) -> None:
        data = self._read(dumped.path)
        complaint = _snapshot_complaint(data)
        if complaint is not None:
            self._err(complaint + "\n")
            return
        try:
            producers = decode_snapshot(dumped.path, data)
        except CheckpointError as error:
            self._err(f"Snapshot failed schema validation: {error}\n")
            return
        for producer in producers:
            line = (
                f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
                f"coordinatorEpoch: {producer.coordinator_epoch} "
                f"currentTxnFirstOffset: {java_optional(producer.txn_first_offset)} "
                f"lastTimestamp: {producer.last_timestamp} "
            )
            for batch in producer.batches:
                line += (
                    f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                    f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
                )
            self._out(line + "\n")

    def finish(self) -> None:
        """Prints the contradictions found in all files."""
        for path in java_order(self._mismatches):
            self._err(f"Mismatches in :{path}\n")
            for index_offset, log_offset in reversed(self._mismatches[path]):
                self._err(f"  Index offset: {index_offset}, log offset: {log_offset}\n")
        for path in java_order(self._wrong_times):
            self._err(f"Found timestamp mismatch in :{path}\n")
            for timestamp, log_timestamp in self._wrong_times[path]:
                self._err(f"  Index timestamp: {timestamp}, log timestamp: {log_timestamp}\n")
        for path in java_order(self._out_of_order):
            self._err(f"Found out of order timestamp in :{path}\n")
            for timestamp, previous in self._out_of_order[path]:
                self._err(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}\n")
        for path in java_order(self._not_found):
            self._err("The following indexed offsets are not found in the log.\n")
            for offset, log_offset in self._not_found[path]:
                self._err(f"Indexed offset: {offset}, found log offset: {log_offset}\n")

    def _read(self, path: str) -> bytes:
        try:
            return self._disk.read(path)
        except FileNotFoundError:
            raise DumpFailed("java.nio.file.NoSuchFileException", path) from None

    def _check_index(self, dumped: DumpedFile, data: bytes, last_offset: int) -> None:
        base_offset = dumped.base_offset()
        if last_offset < base_offset:
            raise DumpFailed(
                _CORRUPT_INDEX,
                f"Corrupt index found, index file {dumped.absolute_path} has non-zero size but the last offset is "
                f"{last_offset} which is less than the base offset {base_offset}",
            )
        _check_size(dumped, data, "Index", _OFFSET_ENTRY.size)
        self._out(f"{dumped.path} passed sanity check.\n")

    def _check_time_index(
        self, dumped: DumpedFile, data: bytes, base_offset: int, entries: list[tuple[int, int]]
    ) -> None:
        if entries and entries[-1][0] < entries[0][0]:
            raise DumpFailed(
                _CORRUPT_INDEX,
                f"Corrupt time index found, time index file ({dumped.absolute_path}) has non-zero size but the last "
                f"timestamp is {entries[-1][0]} which is less than the first timestamp {entries[0][0]}",
            )
        if entries and entries[-1][1] < base_offset:
            raise DumpFailed(
                _CORRUPT_INDEX,
                f"Corrupt time index found, time index file ({dumped.absolute_path}) has non-zero size but the last "
                f"offset is {entries[-1][1]} which is less than the first offset {base_offset}",
            )
        _check_size(dumped, data, "Time index", _TIME_ENTRY.size)
        self._out(f"{dumped.path} passed sanity check.\n")

    def _index_entries(self, dumped: DumpedFile, index: _OffsetEntries, window: Window) -> None:
        base_offset = dumped.base_offset()
        for place, (offset, position) in enumerate(index.entries):
            if place and offset == base_offset:
                return  # the preallocated zeros
            end = _slice_end(dumped, position, self._options.max_message_bytes, window)
            found = next(DumpedBatches(dumped.sibling(LOG_SUFFIX), window, position, end), None)
            if found is None:
                raise DumpFailed("java.util.NoSuchElementException")
            if found[0].last_offset != offset:
                self._mismatches.setdefault(dumped.absolute_path, []).append((offset, found[0].last_offset))
            if not self._options.verify_index_only:
                self._out(f"offset: {offset} position: {position}\n")

    def _time_entries(
        self, dumped: DumpedFile, entries: list[tuple[int, int]], index: _OffsetEntries, window: Window
    ) -> None:
        base_offset = dumped.base_offset()
        previous = NO_TIMESTAMP
        for place, (timestamp, offset) in enumerate(entries):
            if place and offset == base_offset:
                return
            self._look_up(dumped, timestamp, offset, previous, index, window)
            if not self._options.verify_index_only:
                self._out(f"timestamp: {timestamp} offset: {offset}\n")
            previous = timestamp

    def _look_up(
        self, dumped: DumpedFile, timestamp: int, offset: int, previous: int, index: _OffsetEntries, window: Window
    ) -> None:
        position = index.lookup(offset)
        path = dumped.absolute_path
        end = _slice_end(dumped, position, UNLIMITED, window)
        for header, data in DumpedBatches(dumped.sibling(LOG_SUFFIX), window, position, end):
            if header.last_offset < offset:
                continue
            if header.last_offset > offset:
                self._not_found.setdefault(path, []).append((offset, header.last_offset))
                return
            with invalid_record():
                largest = max((record.timestamp for record in decode_batch(data)), default=NO_TIMESTAMP)
            if max(largest, NO_TIMESTAMP) != timestamp:
                self._wrong_times.setdefault(path, []).append((timestamp, max(largest, NO_TIMESTAMP)))
            if previous >= timestamp:
                self._out_of_order.setdefault(path, []).append((timestamp, previous))
            return
        self._not_found.setdefault(path, []).append((offset, -1))


def _check_size(dumped: DumpedFile, data: bytes, kind: str, entry_bytes: int) -> None:
    if len(data) % entry_bytes:
        raise DumpFailed(
            _CORRUPT_INDEX,
            f"{kind} file {dumped.absolute_path} is corrupt, found {len(data)} bytes which is neither positive nor "
            f"a multiple of {entry_bytes}",
        )


def _slice_end(dumped: DumpedFile, position: int, size: int, window: Window) -> int:
    path = dumped.absolute_sibling(LOG_SUFFIX)
    log = f"FileRecords(size={window.end}, file={path}, start=0, end=2147483647)"
    if position < 0:
        text = f"Invalid position: {position} in read from {log}"
        raise DumpFailed("java.lang.IllegalArgumentException", text)
    if position > window.end:
        text = f"Slice from position {position} exceeds end position of {log}"
        raise DumpFailed("java.lang.IllegalArgumentException", text)
    return min(position + size, window.end)


def _snapshot_complaint(data: bytes) -> str | None:
    """Returns Kafka's complaint about a producer snapshot that Kafka rejects, or None."""
    if len(data) < _SNAPSHOT_HEAD_BYTES:
        return f"Snapshot failed schema validation: {len(data)} bytes"
    version, stored = struct.unpack_from(">hI", data)
    if version != 1:
        return f"Snapshot contained an unknown file version {version}"
    computed = crc32c(memoryview(data)[_SNAPSHOT_HEAD_BYTES:])
    if computed != stored:
        return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
    return None
