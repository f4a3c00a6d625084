"""Repair of a partition, so that a broker can open it, without deleting a byte.

The log is cut where recovery would cut it: at the first batch that is not intact. Everything that is cut, replaced or
broken (the end of the file, later segments, bad indexes) moves to `repair-<time>/` in the partition's directory, which
neither Barnabas nor Apache Kafka reads. The names there show the origin:

    00000000000000000042.log.from-1170     the end of that file, from byte 1170 on
    00000000000000000042.log.at-585        a batch before its leader epoch was corrected, or before an empty batch
                                           replaced it
    anything else                          the whole file

Indexes are then rebuilt from the log. A missing producer snapshot needs no replacement: a broker reads an older one, or
replays the log. Leader epochs in batches and in `leader-epoch-checkpoint` have no checksum: a single batch that differs
is corrected, otherwise the checkpoint is rebuilt. A batch with a valid checksum but unreadable records is replaced by
an empty one, as compaction leaves them: all other records keep their offsets, and consumers read past it. This is never
done in the metadata log, where every record counts. A `Repair` first only lists what it would do (`steps`); `apply`
does it, and keeps the old bytes before it changes any.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from barnabas.common.host import Disk, File
from barnabas.common.log_config import LogConfig
from barnabas.common.types import METADATA_TOPIC, TopicPartition
from barnabas.records.batch import read_header
from barnabas.records.header import HEADER_BYTES, LEADER_EPOCH_OFFSET
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    CheckpointError,
    EpochEntry,
    decode_offsets,
    encode_epochs,
    encode_offsets,
    write_atomically,
)
from barnabas.storage.compaction.record_filter import empty_batch
from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.offline.scan import SegmentScan
from barnabas.storage.offline.verify import OFFSET_CHECKPOINTS, PartitionReport, PartitionVerification
from barnabas.storage.offline.verify_indexes import encode_aborted
from barnabas.storage.repair_folder import RepairFolder
from barnabas.storage.segment import RollLimits
from barnabas.storage.segments import LogServices, Segments

REPAIR_DIR_PREFIX = "repair-"
_SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_CUT_BYTES = 1024 * 1024
_MENDED_SUFFIX = ".mended"
_EPOCH = struct.Struct(">i")
#: Faults that rebuilt indexes repair.
_INDEX_FAULTS = frozenset({FileFaultKind.INDEX, FileFaultKind.TIME_INDEX, FileFaultKind.MISSING})


@dataclass(slots=True)
class _Plan:
    """The planned changes to the files of one partition."""

    cut: SegmentScan | None = None
    #: Segments after the cut.
    dropped: list[int] = field(default_factory=list)
    #: Segments whose offset and time indexes, or whose transaction indexes, are rebuilt.
    reindexed: list[int] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    #: (segment, position, size, leader epoch to set)
    stamps: list[tuple[SegmentScan, int, int, int]] = field(default_factory=list)
    epochs: list[EpochEntry] | None = None
    #: Segment -> indexes, in the lists of its scan, of batches whose records cannot be read.
    emptied: dict[int, list[int]] = field(default_factory=dict)


def is_repairable(fault: FileFault) -> bool:
    """Returns whether a repair removes this fault. Identities, metadata snapshots and the records of the metadata log
    can be repaired only by a person who knows their correct content."""
    name = fault.path.rpartition("/")[2]
    if name in OFFSET_CHECKPOINTS:
        return True
    if fault.kind is FileFaultKind.RECORDS:
        return name.endswith(LOG_SUFFIX) and not is_of_metadata(fault.path.rpartition("/")[0])
    if fault.kind in (FileFaultKind.CHECKPOINT, FileFaultKind.UNREADABLE):
        return False
    return name.endswith((*_SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT))


def is_of_metadata(directory: str) -> bool:
    """Returns whether this is the directory of the metadata log."""
    return directory.rpartition("/")[2].rpartition("-")[0] == METADATA_TOPIC


class Repair:
    """The repair of one partition, planned from its verification."""

    __slots__ = ("_disk", "_plan", "_verification", "directory", "log_end_offset", "steps")

    def __init__(self, disk: Disk, verification: PartitionVerification) -> None:
        self._disk = disk
        self._verification = verification
        self.directory = verification.directory
        self.log_end_offset = verification.report.log_end_offset
        self._plan = _Plan()
        self._plan_log()
        self._plan_epochs()
        #: The planned steps, in words; empty if the partition needs no repair.
        self.steps = list(self._describe())

    # Planning

    def _plan_log(self) -> None:
        plan, verification = self._plan, self._verification
        faults = verification.report.faults
        bases = [scan.base_offset for scan in verification.scans]
        plan.cut = cut = verification.damaged
        if cut is not None:
            plan.dropped = [base for base in bases if base > cut.base_offset]
        kept = [base for base in bases if base not in plan.dropped]
        broken = {fault.path.rpartition("/")[2].partition(".")[0] for fault in faults if fault.kind in _INDEX_FAULTS}
        plan.emptied = {} if is_of_metadata(self.directory) else self._unreadable(kept)
        plan.reindexed = [
            base
            for base in kept
            if f"{base:020d}" in broken or (cut and base == cut.base_offset) or base in plan.emptied
        ]
        plan.transactions = [base for base in kept if self._needs_transactions(base)]
        lost = {fault.offset for fault in faults if fault.kind is FileFaultKind.PRODUCERS}
        plan.snapshots = [
            offset for offset in verification.snapshots() if offset in lost or offset > self.log_end_offset
        ]

    def _unreadable(self, kept: list[int]) -> dict[int, list[int]]:
        faults = self._verification.report.faults
        found: dict[int, list[int]] = {}
        for scan in self._verification.scans:
            bad = {
                fault.position for fault in faults if fault.kind is FileFaultKind.RECORDS and fault.path == scan.path
            }
            places = [place for place, position in enumerate(scan.positions) if position in bad]
            if places and scan.base_offset in kept:
                found[scan.base_offset] = places
        return found

    def _needs_transactions(self, base: int) -> bool:
        if base not in self._verification.aborted:
            return False
        path = self._verification.path(base, TXN_INDEX_SUFFIX)
        data = self._disk.read(path) if self._disk.exists(path) else b""
        return data != encode_aborted(self._verification.aborted[base])

    def _plan_epochs(self) -> None:
        plan, verification = self._plan, self._verification
        wrong = [fault for fault in verification.report.faults if fault.kind is FileFaultKind.EPOCHS]
        entries = verification.epochs
        in_batches = [fault for fault in wrong if fault.path.endswith(LOG_SUFFIX)]
        if wrong and (not entries or not _rise(entries) or len(in_batches) > 1 or self._splits_a_batch(entries)):
            entries = self._epochs_of_batches()
        if entries is None:
            return
        kept = [entry for entry in entries if entry.start_offset <= self.log_end_offset]
        if kept != verification.epochs:
            plan.epochs = kept
        for scan in verification.scans:
            if wrong and scan.base_offset not in plan.dropped:
                plan.stamps += _stamps(scan, kept)

    def _splits_a_batch(self, entries: list[EpochEntry]) -> bool:
        """Returns whether an epoch begins inside a batch, which is impossible: a batch has one epoch."""
        starts = [entry.start_offset for entry in entries]
        return any(
            bisect_right(starts, first) != bisect_right(starts, last)
            for scan in self._verification.scans
            for first, last in zip(scan.first_offsets, scan.last_offsets, strict=True)
        )

    def _epochs_of_batches(self) -> list[EpochEntry]:
        """Returns the epochs as a follower records them: one begins where a larger one appears."""
        entries: list[EpochEntry] = []
        for scan in self._verification.scans:
            if scan.base_offset in self._plan.dropped:
                continue
            for place, epoch in enumerate(scan.epochs):
                if epoch > (entries[-1].epoch if entries else -1):
                    entries.append(EpochEntry(epoch, scan.first_offsets[place]))
        return entries

    def _describe(self) -> Iterable[str]:
        plan, path = self._plan, self._verification.path
        if plan.cut is not None:
            cut = plan.cut
            yield (
                f"{cut.path}: cut at byte {cut.valid_bytes}, offset {cut.next_offset}; "
                f"{cut.size_bytes - cut.valid_bytes} bytes saved in the repair folder"
            )
        for scan in self._verification.scans:
            for place in plan.emptied.get(scan.base_offset, ()):
                yield (
                    f"{scan.path}: the batch at byte {scan.positions[place]}, offsets {scan.first_offsets[place]} to "
                    f"{scan.last_offsets[place]}, is replaced by an empty one and saved in the repair folder"
                )
        for base in plan.dropped:
            yield f"{path(base, LOG_SUFFIX)}: moved to the repair folder with its indexes, because it follows the cut"
        for base in plan.reindexed:
            yield f"{path(base, LOG_SUFFIX)}: indexes rebuilt"
        for offset in plan.snapshots:
            yield f"{path(offset, SNAPSHOT_SUFFIX)}: moved to the repair folder"
        for base in plan.transactions:
            yield f"{path(base, TXN_INDEX_SUFFIX)}: rebuilt"
        if plan.epochs is not None:
            yield f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}: rebuilt"
        for scan, position, _, epoch in plan.stamps:
            yield f"{scan.path}: leader epoch of the batch at byte {position} set to {epoch}"

    # Execution

    def apply(self, kept_name: str) -> str | None:
        """Repairs the partition. Returns the folder with the removed files, or None if nothing had to be done."""
        if not self.steps:
            return None
        plan = self._plan
        kept = RepairFolder(self._disk, self.directory, kept_name)
        for scan, position, size, epoch in plan.stamps:
            self._set_epoch(kept, scan, position, size, epoch)
        if plan.cut is not None:
            self._cut(kept, plan.cut)
        for scan in self._verification.scans:
            if scan.base_offset in plan.emptied:
                self._empty(kept, scan, plan.emptied[scan.base_offset])
        for base in plan.dropped:
            kept.move(*(self._verification.path(base, suffix) for suffix in _SEGMENT_SUFFIXES))
        kept.move(*(self._verification.path(offset, SNAPSHOT_SUFFIX) for offset in plan.snapshots))
        if plan.epochs is not None:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            kept.copy(path)
            write_atomically(self._disk, path, encode_epochs(plan.epochs))
        self._rebuild(kept)
        self._disk.sync_dir(self.directory)
        return kept.directory

    def _set_epoch(self, kept: RepairFolder, scan: SegmentScan, position: int, size: int, epoch: int) -> None:
        file = self._disk.open(scan.path)
        try:
            kept.write(f"{scan.path.rpartition('/')[2]}.at-{position}", [file.read_at(position, size)])
            file.write_at(position + LEADER_EPOCH_OFFSET, _EPOCH.pack(epoch))
            file.sync()
        finally:
            file.close()

    def _cut(self, kept: RepairFolder, cut: SegmentScan) -> None:
        file = self._disk.open(cut.path)
        try:
            tail = _parts(file, cut.valid_bytes, cut.size_bytes)
            kept.write(f"{cut.path.rpartition('/')[2]}.from-{cut.valid_bytes}", tail)
            file.truncate(cut.valid_bytes)
            file.sync()
        finally:
            file.close()

    def _empty(self, kept: RepairFolder, scan: SegmentScan, places: list[int]) -> None:
        """Rewrites the segment so that the batches at these indexes are empty."""
        name = scan.path.rpartition("/")[2]
        file = self._disk.open(scan.path, read_only=True)
        made = self._disk.open(scan.path + _MENDED_SUFFIX, create=True)
        try:
            made.truncate(0)
            copied = 0
            for place in places:
                position, size = scan.positions[place], scan.sizes[place]
                for part in _parts(file, copied, position):
                    made.append(part)
                batch = file.read_at(position, size)
                kept.write(f"{name}.at-{position}", [batch])
                made.append(empty_batch(read_header(batch)).data)
                copied, scan.sizes[place] = position + size, HEADER_BYTES
            for part in _parts(file, copied, file.size()):
                made.append(part)
            made.sync()
        finally:
            made.close()
            file.close()
        self._disk.rename(scan.path + _MENDED_SUFFIX, scan.path)

    def _rebuild(self, kept: RepairFolder) -> None:
        """Rebuilds the planned indexes from the log, which is intact by now."""
        plan, path = self._plan, self._verification.path
        scans = [scan for scan in self._verification.scans if scan.base_offset not in plan.dropped]
        for base in plan.reindexed:
            kept.move(path(base, INDEX_SUFFIX), path(base, TIME_INDEX_SUFFIX))
        for base in plan.transactions:
            kept.move(path(base, TXN_INDEX_SUFFIX))
            entries = self._verification.aborted[base]
            if entries:
                self._disk.write(path(base, TXN_INDEX_SUFFIX), encode_aborted(entries), sync=True)
        services = LogServices(self._disk, lambda: 0, lambda bound: 0, Descriptors())
        segments = Segments(services, self.directory, [scan.base_offset for scan in scans])
        limits = RollLimits(LogConfig(), 0)
        for segment, scan in zip(segments, scans, strict=True):
            if scan.base_offset not in plan.reindexed:
                segment.open_clean()
                continue
            segment.begin_rebuild()
            for place, size in enumerate(scan.sizes):
                segment.note(size, scan.last_offsets[place], scan.timestamps[place], limits)
            segment.end_rebuild()
            segment.flush(with_indexes=True)
        segments.release()


def _parts(file: File, start: int, end: int) -> Iterable[bytes]:
    """Yields the file's bytes between two positions, in parts."""
    return (file.read_at(place, min(_CUT_BYTES, end - place)) for place in range(start, end, _CUT_BYTES))


def _rise(entries: list[EpochEntry]) -> bool:
    return all(
        first.epoch < second.epoch and first.start_offset < second.start_offset for first, second in pairwise(entries)
    )


def _stamps(scan: SegmentScan, entries: list[EpochEntry]) -> Iterable[tuple[SegmentScan, int, int, int]]:
    for place, epoch in enumerate(scan.epochs):
        known = [entry.epoch for entry in entries if entry.start_offset <= scan.first_offsets[place]]
        if known and known[-1] != epoch:
            yield scan, scan.positions[place], scan.sizes[place], known[-1]


# Data directories


def plan_directory(
    disk: Disk, directory: str, reports: dict[TopicPartition, PartitionReport]
) -> dict[str, dict[TopicPartition, int]]:
    """Returns the checkpoints that name offsets beyond the ends of the logs: file -> corrected content."""
    planned: dict[str, dict[TopicPartition, int]] = {}
    for name in OFFSET_CHECKPOINTS:
        path = f"{directory}/{name}"
        if not disk.exists(path):
            continue
        try:
            offsets = decode_offsets(path, disk.read(path))
        except CheckpointError:
            # The file cannot be trusted: without entries, a broker falls back to the log start offsets.
            planned[path] = {}
            continue
        ends = {tp: reports[tp].log_end_offset for tp in offsets if tp in reports}
        put_right = {tp: min(offset, ends.get(tp, offset)) for tp, offset in offsets.items()}
        if put_right != offsets:
            planned[path] = put_right
    return planned


def apply_directory(
    disk: Disk, directory: str, planned: dict[str, dict[TopicPartition, int]], kept_name: str
) -> list[str]:
    """Writes the checkpoints, keeps a copy of the old ones in the same directory, and removes the clean-shutdown
    marker, so that the next startup runs recovery on the repaired logs. Returns the kept files."""
    kept = []
    for path, offsets in planned.items():
        disk.write(f"{path}.{kept_name}", disk.read(path), sync=True)
        kept.append(f"{path}.{kept_name}")
        write_atomically(disk, path, encode_offsets(offsets))
    marker = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if disk.exists(marker):
        disk.rename(marker, f"{marker}.{kept_name}")
        kept.append(f"{marker}.{kept_name}")
    disk.sync_dir(directory)
    return kept
