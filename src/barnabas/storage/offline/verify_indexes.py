"""Indexes, epochs and producer snapshots compared with the batches that a scan found.

An index is sparse and can lag behind its log, but every entry must be right. Zeros at its end are space that a Java
broker preallocated. Entries that refer to a part after damage are not checked.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from barnabas.common.host import Disk
from barnabas.records.batch import BatchHeader, decode_batch, read_end_txn_marker
from barnabas.records.header import MAGIC_V2
from barnabas.storage.checkpoints import EpochEntry
from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.offline.scan import SegmentScan
from barnabas.storage.transaction_index import AbortedTxn

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")


def _entries(data: bytes, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields (position, fields) of the index entries before the zeros at the end."""
    filled = len(data.rstrip(b"\0"))
    count = min(-(-filled // entry.size), len(data) // entry.size)
    for place in range(count):
        yield place * entry.size, entry.unpack_from(data, place * entry.size)


def check_index(disk: Disk, path: str, scan: SegmentScan) -> FileFault | None:
    """Returns the first fault of an offset index."""
    data = disk.read(path)
    starts = {position: place for place, position in enumerate(scan.positions)}
    ends = set(scan.last_offsets)
    previous_offset = previous_position = -1
    for at, (relative, position) in _entries(data, _OFFSET_ENTRY):
        offset = scan.base_offset + relative
        text = None
        if relative < 0 or position < 0 or offset <= previous_offset or position <= previous_position:
            text = f"entry {offset} -> byte {position} does not follow {previous_offset} -> byte {previous_position}"
        elif scan.damage is not None and position >= scan.valid_bytes:
            return None
        elif position not in starts:
            text = f"entry {offset} -> byte {position}, where no batch begins"
        elif offset < scan.first_offsets[starts[position]] or offset not in ends:
            text = f"entry {offset} -> byte {position}, where offset {scan.first_offsets[starts[position]]} begins"
        if text is not None:
            return FileFault(path, FileFaultKind.INDEX, text, at, offset)
        previous_offset, previous_position = offset, position
    return _size_fault(path, FileFaultKind.INDEX, data, _OFFSET_ENTRY)


def check_time_index(disk: Disk, path: str, scan: SegmentScan) -> FileFault | None:
    """Returns the first fault of a time index."""
    data = disk.read(path)
    previous_offset = previous_timestamp = -1
    for at, (timestamp, relative) in _entries(data, _TIME_ENTRY):
        offset = scan.base_offset + relative
        place = bisect_left(scan.last_offsets, offset)
        text = None
        if relative < 0 or offset <= previous_offset or timestamp <= previous_timestamp:
            text = f"entry {timestamp} -> {offset} does not follow {previous_timestamp} -> {previous_offset}"
        elif place == len(scan.last_offsets):
            if scan.damage is not None:
                return None
            text = f"entry {timestamp} -> {offset}, but the segment ends at {scan.next_offset}"
        elif scan.timestamps[place] != timestamp:
            text = f"entry {timestamp} -> {offset}, whose batch has timestamp {scan.timestamps[place]}"
        if text is not None:
            return FileFault(path, FileFaultKind.TIME_INDEX, text, at, offset)
        previous_offset, previous_timestamp = offset, timestamp
    return _size_fault(path, FileFaultKind.TIME_INDEX, data, _TIME_ENTRY)


def _size_fault(path: str, kind: FileFaultKind, data: bytes, entry: struct.Struct) -> FileFault | None:
    # Preallocated space is a multiple of the entry size too.
    if len(data) % entry.size == 0:
        return None
    text = f"the size of {len(data)} bytes is not a multiple of {entry.size}"
    return FileFault(path, kind, text, len(data) - len(data) % entry.size)


class Transactions:
    """The transactions of a log, followed through its batches. `is_whole` is true until something is missing that a
    transaction could have begun with; only while it is true can every index entry be predicted.
    """

    __slots__ = ("_markers", "_open", "aborted", "is_whole")

    def __init__(self, open_at_start: Mapping[int, int], *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self._open = dict(open_at_start)
        #: The entries that the current segment's index must contain, and offset -> producer of its abort markers.
        self.aborted: list[AbortedTxn] = []
        self._markers: dict[int, int] = {}

    def begin_segment(self) -> None:
        self.aborted = []
        self._markers = {}

    def note(self, header: BatchHeader, data: memoryview) -> None:
        if not header.is_transactional or header.magic != MAGIC_V2:
            return
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        for record in decode_batch(data):
            marker = read_end_txn_marker(record)
            if marker is None:
                continue
            first_offset = self._open.pop(header.producer_id, None)
            if marker.commit:
                continue
            self._markers[record.offset] = header.producer_id
            if first_offset is not None:
                stable = min(self._open.values(), default=record.offset + 1)
                self.aborted.append(AbortedTxn(header.producer_id, first_offset, record.offset, stable))

    def check(self, disk: Disk, path: str, scan: SegmentScan) -> FileFault | None:
        """Returns the first fault of the segment's transaction index, which can be absent."""
        data = disk.read(path) if disk.exists(path) else b""
        expected = {aborted.last_offset: aborted for aborted in self.aborted}
        previous = -1
        found = set()
        for at in range(0, len(data) - _ABORTED.size + 1, _ABORTED.size):
            version, *fields = _ABORTED.unpack_from(data, at)
            entry = AbortedTxn(*fields)
            if scan.damage is not None and entry.last_offset >= scan.next_offset:
                return None
            text = self._entry_fault(version, entry, previous, expected.get(entry.last_offset))
            if text is not None:
                return FileFault(path, FileFaultKind.TXN_INDEX, text, at, entry.last_offset)
            previous = entry.last_offset
            found.add(previous)
        fault = _size_fault(path, FileFaultKind.TXN_INDEX, data, _ABORTED)
        if fault is not None:
            return fault
        for offset, aborted in expected.items():
            if offset not in found:
                text = f"no entry for the transaction of producer {aborted.producer_id} aborted at offset {offset}"
                return FileFault(path, FileFaultKind.TXN_INDEX, text, None, offset)
        return None

    def sound_entries(self, disk: Disk, path: str) -> list[AbortedTxn]:
        """Returns the index entries that the log confirms, together with those that the log requires."""
        data = disk.read(path) if disk.exists(path) else b""
        found: dict[int, AbortedTxn] = {}
        for version, *fields in _ABORTED.iter_unpack(data[: len(data) - len(data) % _ABORTED.size]):
            entry = AbortedTxn(*fields)
            if self._entry_fault(version, entry, -1, None) is None:
                found[entry.last_offset] = entry
        found |= {aborted.last_offset: aborted for aborted in self.aborted}
        return [found[offset] for offset in sorted(found)]

    def _entry_fault(self, version: int, entry: AbortedTxn, previous: int, expected: AbortedTxn | None) -> str | None:
        if version != 0:
            return f"an entry of version {version}"
        if entry.last_offset <= previous:
            return f"an entry for offset {entry.last_offset} after the one for {previous}"
        if self._markers.get(entry.last_offset) != entry.producer_id:
            return f"producer {entry.producer_id} did not abort a transaction at offset {entry.last_offset}"
        if expected is not None and self.is_whole and entry != expected:
            return f"{entry}, but the log has {expected}"
        if not 0 <= entry.first_offset < entry.last_offset or entry.last_stable_offset > entry.last_offset + 1:
            return f"an impossible transaction from offset {entry.first_offset} to {entry.last_offset}"
        return None


def encode_aborted(entries: Iterable[AbortedTxn]) -> bytes:
    """Encodes a transaction index with these entries."""
    return b"".join(_ABORTED.pack(0, *entry) for entry in entries)


def check_epochs(
    path: str, entries: Sequence[EpochEntry], scans: Sequence[SegmentScan], complete_below: int
) -> list[FileFault]:
    """Compares the epochs in the checkpoint with those in the batches, which are outside the checksums. An epoch newer
    than the checkpoint's can begin at `complete_below` or later."""
    previous = EpochEntry(-1, -1)
    for entry in entries:
        if entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset:
            text = f"epoch {entry.epoch} at offset {entry.start_offset} does not follow epoch {previous.epoch}"
            return [FileFault(path, FileFaultKind.EPOCHS, text, None, entry.start_offset)]
        previous = entry
    faults = []
    name = path.rpartition("/")[2]
    starts = [entry.start_offset for entry in entries]
    for scan in scans:
        for place, epoch in enumerate(scan.epochs):
            first, last = scan.first_offsets[place], scan.last_offsets[place]
            if first >= complete_below and epoch > previous.epoch:
                continue
            if epoch >= 0 and not entries:
                return [
                    FileFault(
                        path, FileFaultKind.EPOCHS, f"the file has no epoch, but the log has epoch {epoch}", None, first
                    )
                ]
            known = bisect_right(starts, first), bisect_right(starts, last)
            # The offsets before the first entry have no known position.
            if any(count and entries[count - 1].epoch != epoch for count in known):
                text = f"a batch of leader epoch {epoch}, but {name} has {entries[known[1] - 1].epoch}"
                faults.append(FileFault(scan.path, FileFaultKind.EPOCHS, text, scan.positions[place], first))
    return faults
