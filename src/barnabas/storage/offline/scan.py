"""A segment's `.log` read batch by batch, without trusting any of it.

The first damage is where recovery would cut: an incomplete batch, an impossible header, a wrong checksum, or offsets
that go back or reach into the next segment. The scan continues after a wrong checksum, to report further ones; after a
wrong size the next batch cannot be located.

Base offset and leader epoch are outside the checksum. If the offsets go back from one batch to the next, either can be
wrong: the first one is blamed if there is a gap before it, and the second one fits where the gap began.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk
from barnabas.records.batch import BatchHeader, decode_batch, has_valid_crc, read_header
from barnabas.records.header import (
    HEADER_BYTES,
    LEGACY_MIN_BYTES,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    PREFIX,
    PREFIX_BYTES,
)
from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.read_window import Window

_RELATIVE_MAX = 0x7FFFFFFF

#: Receives each intact batch with its position.
OnBatch = Callable[[int, BatchHeader, memoryview], None]
#: Returns why an intact batch cannot follow those before it; "" if it can.
Follows = Callable[[BatchHeader, memoryview], str]


class SegmentScan:
    """The contents of a segment up to its first damage. The lists have one item per intact batch."""

    __slots__ = (
        "base_offset",
        "damage",
        "epochs",
        "faults",
        "first_gap",
        "first_offsets",
        "gaps",
        "last_offsets",
        "next_offset",
        "path",
        "positions",
        "records",
        "size_bytes",
        "sizes",
        "timestamps",
        "valid_bytes",
    )

    def __init__(self, path: str, base_offset: int, expected_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        #: The offset after the last intact batch.
        self.next_offset = max(base_offset, expected_offset)
        self.valid_bytes = 0
        self.size_bytes = 0
        self.records = 0
        self.gaps = 1 if base_offset > expected_offset else 0
        self.first_gap: int | None = expected_offset if self.gaps else None
        self.damage: FileFault | None = None
        self.faults: list[FileFault] = []
        self.positions: list[int] = []
        self.sizes: list[int] = []
        self.first_offsets: list[int] = []
        self.last_offsets: list[int] = []
        self.timestamps: list[int] = []
        self.epochs: list[int] = []

    def add(self, position: int, header: BatchHeader, size: int) -> None:
        if header.base_offset > self.next_offset:
            self.gaps += 1
            self.first_gap = self.next_offset if self.first_gap is None else self.first_gap
        self.positions.append(position)
        self.sizes.append(size)
        self.first_offsets.append(header.base_offset)
        self.last_offsets.append(header.last_offset)
        self.timestamps.append(header.max_timestamp)
        self.epochs.append(header.partition_leader_epoch)
        self.records += header.record_count
        self.next_offset = header.next_offset
        self.valid_bytes = position + size

    def drop_last(self) -> None:
        for column in (self.positions, self.sizes, self.first_offsets, self.last_offsets, self.timestamps, self.epochs):
            column.pop()

    def damaged(self, fault: FileFault) -> None:
        self.faults.append(fault)
        if self.damage is None:
            self.damage = fault


def scan_segment(
    disk: Disk,
    path: str,
    base_offset: int,
    *,
    expected_offset: int,
    end_offset: int | None,
    with_records: bool,
    on_batch: OnBatch,
    follows: Follows | None = None,
) -> SegmentScan:
    """Reads the whole segment. `expected_offset` is the end of the segment before it, `end_offset` the beginning of the
    next one."""
    scan = SegmentScan(path, base_offset, expected_offset)
    file = disk.open(path, read_only=True)
    try:
        window = Window(file)
        scan.size_bytes = window.end
        _Scanner(scan, window, end_offset, with_records, on_batch, follows).run()
    finally:
        file.close()
    return scan


class _Scanner:
    def __init__(
        self,
        scan: SegmentScan,
        window: Window,
        end_offset: int | None,
        with_records: bool,
        on_batch: OnBatch,
        follows: Follows | None,
    ) -> None:
        self._scan = scan
        self._window = window
        self._end_offset = end_offset
        self._with_records = with_records
        self._on_batch = on_batch
        self._follows = follows
        #: The offset expected before the last batch, if that batch left a gap.
        self._expected_before_gap: int | None = None
        #: The last intact batch. It is reported only after the next batch did not show its offset to be wrong.
        self._pending: tuple[int, BatchHeader, memoryview] | None = None

    def run(self) -> None:
        position = 0
        while position < self._window.end:
            size = self._step(position)
            if size is None:
                break
            position += size
        self._report_pending()

    def _report_pending(self) -> None:
        if self._pending is not None:
            self._on_batch(*self._pending)
            self._pending = None

    def _step(self, position: int) -> int | None:
        """Checks the batch at this position. Returns its size, or None if no further batch can be located."""
        scan, left = self._scan, self._window.end - position
        fault = self._outline(position, left)
        if fault is not None:
            if scan.damage is None:
                scan.damaged(fault)
            return None
        data = self._window.at(position, LOG_OVERHEAD + PREFIX.unpack(self._window.at(position, LOG_OVERHEAD))[1])
        base_offset: int = PREFIX.unpack_from(data)[0]
        try:
            header = read_header(data)
            is_sound = has_valid_crc(data, 0, header)
        except RecordsRejected as rejected:
            scan.damaged(
                FileFault(scan.path, FileFaultKind.CHECKSUM, f"an invalid batch: {rejected}", position, base_offset)
            )
            return len(data)
        if not is_sound:
            text = f"the checksum of a batch of {len(data)} bytes is wrong"
            scan.damaged(FileFault(scan.path, FileFaultKind.CHECKSUM, text, position, base_offset))
            return len(data)
        if scan.damage is not None:
            return len(data)
        fault = self._offsets(position, header) or self._place(position, header, data)
        if fault is not None:
            scan.damaged(fault)
            return None
        self._expected_before_gap = scan.next_offset if header.base_offset > scan.next_offset else None
        scan.add(position, header, len(data))
        if self._with_records:
            fault = _records_fault(scan.path, position, header, data)
            if fault is not None:
                scan.faults.append(fault)
        self._report_pending()
        self._pending = position, header, data
        return len(data)

    def _outline(self, position: int, left: int) -> FileFault | None:
        """Returns a fault unless there can be a complete batch at this position."""
        path, expected = self._scan.path, self._scan.next_offset
        if left < PREFIX_BYTES:
            return FileFault(path, FileFaultKind.TORN, f"the last {left} bytes are not a batch", position, expected)
        prefix = self._window.at(position, PREFIX_BYTES)
        length = PREFIX.unpack_from(prefix)[1] + LOG_OVERHEAD
        magic = prefix[MAGIC_OFFSET]
        if magic > MAGIC_V2:
            return FileFault(path, FileFaultKind.HEADER, f"a batch of unknown magic {magic}", position, expected)
        if length < (HEADER_BYTES if magic == MAGIC_V2 else LEGACY_MIN_BYTES):
            text = f"a batch cannot have {length} bytes; the last {left} bytes of the file are unreadable"
            return FileFault(path, FileFaultKind.HEADER, text, position, expected)
        if length > left:
            return FileFault(
                path,
                FileFaultKind.TORN,
                f"a batch of {length} bytes, but only {left} bytes are left",
                position,
                expected,
            )
        return None

    def _place(self, position: int, header: BatchHeader, data: memoryview) -> FileFault | None:
        """Returns the fault that `follows`, the additional check of the metadata log, finds in this batch; None if
        there is none.
        """
        text = "" if self._follows is None else self._follows(header, data)
        return FileFault(self._scan.path, FileFaultKind.OFFSET, text, position, header.base_offset) if text else None

    def _offsets(self, position: int, header: BatchHeader) -> FileFault | None:
        scan = self._scan
        if header.base_offset < scan.next_offset:
            before = self._expected_before_gap
            if before is not None and header.base_offset >= before:
                blamed, first = scan.positions[-1], scan.first_offsets[-1]
                scan.drop_last()
                self._pending = None
                scan.next_offset, scan.valid_bytes = before, blamed
                scan.gaps -= 1
                text = f"a batch at offset {first} between offsets {before - 1} and {header.base_offset}"
                return FileFault(scan.path, FileFaultKind.OFFSET, text, blamed, first)
            text = f"offset {header.base_offset}, but at least {scan.next_offset} was expected"
            return FileFault(scan.path, FileFaultKind.OFFSET, text, position, header.base_offset)
        if header.last_offset_delta < 0 or header.last_offset - scan.base_offset > _RELATIVE_MAX:
            text = f"an impossible last offset {header.last_offset} in the segment of {scan.base_offset}"
            return FileFault(scan.path, FileFaultKind.OFFSET, text, position, header.base_offset)
        if self._end_offset is not None and header.last_offset >= self._end_offset:
            text = f"offset {header.last_offset} in a segment that ends before {self._end_offset}"
            return FileFault(scan.path, FileFaultKind.OFFSET, text, position, header.base_offset)
        return None


def _records_fault(path: str, position: int, header: BatchHeader, data: memoryview) -> FileFault | None:
    """Returns a fault unless the records are those that the header announces. The checksum does not show this: the
    producer computed it over the wrong records."""
    try:
        records = decode_batch(data)
    except RecordsRejected as rejected:
        return FileFault(
            path, FileFaultKind.RECORDS, f"the records cannot be read: {rejected}", position, header.base_offset
        )
    offset = header.base_offset - 1
    for record in records:
        if not offset < record.offset <= header.last_offset:
            text = f"offset {record.offset} of a record in the batch {header.base_offset} to {header.last_offset}"
            return FileFault(path, FileFaultKind.RECORDS, text, position, record.offset)
        offset = record.offset
    if header.magic != MAGIC_V2 and offset != header.last_offset:
        text = f"a message set that ends at offset {offset} in a wrapper of offset {header.last_offset}"
        return FileFault(path, FileFaultKind.RECORDS, text, position, header.base_offset)
    return None
