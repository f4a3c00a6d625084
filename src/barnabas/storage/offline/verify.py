"""Verification of partitions and data directories, read-only: compares each file with the others.

    .log                         sizes, checksums, order of offsets, records (`scan`)
    .index .timeindex            every entry refers to the right batch (`verify_indexes`)
    .txnindex                    exactly the aborted transactions of the log
    .snapshot                    checksum; no producers beyond the end of the log
    leader-epoch-checkpoint      the epochs of the batches, which their checksums do not cover
    .checkpoint                  a metadata snapshot: batches, header and footer
    meta.properties, partition.metadata, *-offset-checkpoint, .kafka_cleanshutdown
                                 readable, and not beyond the ends of the logs

A fault is something a broker cannot read or must not trust. A note is something that can be right: gaps as compaction
leaves them, files and directories that are to be removed. The end of a log that a running broker is writing can look
torn. An epoch that began above the recovery point can be missing from the checkpoint (`RecoveryPointFiles`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, ControlType, control_type, decode_batch
from barnabas.storage.checkpoints import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
    CLEANED_SUFFIX,
    CLEANER_CHECKPOINT,
    DELETED_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    CheckpointError,
    EpochEntry,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    file_name,
    offset_of,
    parse_dir_name,
)
from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.offline.scan import Follows, SegmentScan, scan_segment
from barnabas.storage.offline.verify_indexes import Transactions, check_epochs, check_index, check_time_index
from barnabas.storage.producer_snapshots import decode_snapshot
from barnabas.storage.transaction_index import AbortedTxn

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
EVERYWHERE: Final = 1 << 63
_METADATA_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint")
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


@dataclass(slots=True)
class PartitionReport:
    """The findings in one partition's directory."""

    directory: str
    faults: list[FileFault] = field(default_factory=list)
    notes: list[FileFault] = field(default_factory=list)
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    log_end_offset: int = 0
    #: Whether the log itself must be cut somewhere.
    is_damaged: bool = False

    def add(self, found: Iterable[FileFault | None]) -> None:
        for fault in found:
            if fault is not None:
                (self.notes if fault.is_note else self.faults).append(fault)


class PartitionVerification:
    """The verification of one partition: its scans, and the values that the report and a repair need."""

    __slots__ = (
        "_disk",
        "_epochs_below",
        "_follows",
        "_names",
        "_with_records",
        "aborted",
        "directory",
        "epochs",
        "report",
        "scans",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        with_records: bool = True,
        epochs_below: int = EVERYWHERE,
        follows: Follows | None = None,
    ) -> None:
        """Verifies `directory`. `epochs_below`: the checkpoint must contain every epoch that begins below this offset.
        `follows`: an additional check from batch to batch."""
        self._disk = disk
        self._follows = follows
        self._with_records = with_records
        self._epochs_below = epochs_below
        self.directory = directory
        self.report = PartitionReport(directory)
        self.scans: list[SegmentScan] = []
        #: The recovery points by partition; None if the checkpoint cannot be read.
        self.epochs: list[EpochEntry] | None = []
        #: Base offset -> the entries that a transaction index must contain, for segments that could need a new one.
        self.aborted: dict[int, list[AbortedTxn]] = {}
        self._names: Sequence[str] = ()

    def run(self) -> PartitionReport:
        report = self.report
        try:
            self._names = self._disk.list_dir(self.directory)
            self._segments()
            report.add(self._snapshots())
            report.add(self._small_files())
            report.add(self._metadata_snapshots())
        except OSError as error:
            path = error.filename or self.directory
            report.add([FileFault(str(path), FileFaultKind.UNREADABLE, error.strerror or str(error))])
        report.add(self._leftovers())
        return report

    @property
    def damaged(self) -> SegmentScan | None:
        """The segment in which the log must be cut, if there is one."""
        return next((scan for scan in self.scans if scan.damage is not None), None)

    def bases(self) -> list[int]:
        logs = (offset_of(name) for name in self._names if name.endswith(LOG_SUFFIX))
        return sorted(offset for offset in logs if offset is not None)

    def snapshots(self) -> list[int]:
        found = (offset_of(name) for name in self._names if name.endswith(SNAPSHOT_SUFFIX))
        return sorted(offset for offset in found if offset is not None)

    def path(self, offset: int, suffix: str) -> str:
        return f"{self.directory}/{file_name(offset, suffix)}"

    # Segments

    def _segments(self) -> None:
        report, bases = self.report, self.bases()
        transactions = self._transactions(bases)
        expected = bases[0] if bases else 0
        for place, base in enumerate(bases):
            transactions.begin_segment()
            scan = scan_segment(
                self._disk,
                self.path(base, LOG_SUFFIX),
                base,
                expected_offset=expected,
                end_offset=bases[place + 1] if place + 1 < len(bases) else None,
                with_records=self._with_records,
                on_batch=_noting(transactions, report),
                follows=self._follows,
            )
            self.scans.append(scan)
            transactions.is_whole = transactions.is_whole and not scan.gaps
            report.add(scan.faults)
            report.add(self._gap(scan))
            report.add(self._segment_indexes(scan, transactions))
            if scan.damage is not None:
                transactions.is_whole = False
                report.is_damaged = True
            report.segments += 1
            report.records += scan.records
            report.size_bytes += scan.size_bytes
            expected = scan.next_offset
        damaged = self.damaged
        report.log_end_offset = damaged.next_offset if damaged is not None else expected

    def _transactions(self, bases: Sequence[int]) -> Transactions:
        """Returns the transactions that are open before the first segment, according to its producer snapshot."""
        if not bases or bases[0] == 0:
            return Transactions({}, is_whole=True)
        path = self.path(bases[0], SNAPSHOT_SUFFIX)
        try:
            producers = decode_snapshot(path, self._disk.read(path))
        except (CheckpointError, FileNotFoundError):
            return Transactions({}, is_whole=False)
        begun = {p.producer_id: p.txn_first_offset for p in producers if p.txn_first_offset is not None}
        return Transactions(begun, is_whole=True)

    def _gap(self, scan: SegmentScan) -> list[FileFault]:
        if not scan.gaps:
            return []
        text = f"offsets are missing in {scan.gaps} place{'s' if scan.gaps > 1 else ''}, as after compaction"
        return [FileFault(scan.path, FileFaultKind.GAP, text, None, scan.first_gap, is_note=True)]

    def _segment_indexes(self, scan: SegmentScan, transactions: Transactions) -> list[FileFault | None]:
        found: list[FileFault | None] = []
        for suffix, check in ((INDEX_SUFFIX, check_index), (TIME_INDEX_SUFFIX, check_time_index)):
            path = self.path(scan.base_offset, suffix)
            if self._disk.exists(path):
                found.append(check(self._disk, path, scan))
            else:
                found.append(FileFault(path, FileFaultKind.MISSING, "the file is missing", None, scan.base_offset))
        path = self.path(scan.base_offset, TXN_INDEX_SUFFIX)
        fault = transactions.check(self._disk, path, scan)
        if fault is not None or scan.damage is not None:
            self.aborted[scan.base_offset] = transactions.sound_entries(self._disk, path)
        return [*found, fault]

    # Files other than segments

    def _snapshots(self) -> list[FileFault]:
        faults = []
        for offset in self.snapshots():
            path = self.path(offset, SNAPSHOT_SUFFIX)
            try:
                producers = decode_snapshot(path, self._disk.read(path))
            except CheckpointError as error:
                faults.append(_unreadable(error, FileFaultKind.PRODUCERS, offset))
                continue
            end = self.report.log_end_offset
            if offset > end and not self.report.is_damaged:
                text = f"a snapshot at offset {offset}, but the log ends at {end}"
                faults.append(FileFault(path, FileFaultKind.PRODUCERS, text, None, offset))
            for producer in producers:
                if any(batch.last_offset >= offset for batch in producer.batches):
                    text = f"producer {producer.producer_id} has a batch at or above offset {offset}"
                    faults.append(FileFault(path, FileFaultKind.PRODUCERS, text, None, offset))
        return faults

    def _small_files(self) -> list[FileFault]:
        faults: list[FileFault] = []
        path = f"{self.directory}/{PARTITION_METADATA}"
        if PARTITION_METADATA in self._names:
            try:
                decode_partition_metadata(path, self._disk.read(path))
            except CheckpointError as error:
                faults.append(_unreadable(error, FileFaultKind.CHECKPOINT))
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        data = self._disk.read(path) if LEADER_EPOCH_CHECKPOINT in self._names else b""
        try:
            self.epochs = decode_epochs(path, data)
        except CheckpointError as error:
            self.epochs = None
            return [*faults, _unreadable(error, FileFaultKind.EPOCHS)]
        damaged = self.damaged
        end = self.report.log_end_offset
        scans = self.scans[: self.scans.index(damaged) + 1] if damaged else self.scans
        faults += check_epochs(path, self.epochs, scans, self._epochs_below)
        for entry in self.epochs:
            if entry.start_offset > end and not self.report.is_damaged:
                text = f"epoch {entry.epoch} begins at {entry.start_offset}, but the log ends at {end}"
                faults.append(FileFault(path, FileFaultKind.EPOCHS, text, None, entry.start_offset))
        return faults

    def _metadata_snapshots(self) -> list[FileFault]:
        names = [name for name in self._names if _METADATA_SNAPSHOT.fullmatch(name)]
        return [fault for name in names for fault in check_metadata_snapshot(self._disk, f"{self.directory}/{name}")]

    def _leftovers(self) -> list[FileFault]:
        """Returns one note for all leftover files of a kind, because there can be thousands."""
        logs = {name.partition(".")[0] for name in self._names if name.endswith(LOG_SUFFIX)}
        texts: dict[str, list[str]] = {}
        for name in self._names:
            stem, _, suffix = name.partition(".")
            if name.endswith(_LEFTOVER_SUFFIXES):
                text = "a leftover that a broker removes or completes at its next start"
            elif f".{suffix}" in _INDEX_SUFFIXES and stem not in logs:
                text = "an index without its .log file"
            else:
                continue
            texts.setdefault(text, []).append(name)
        found = []
        for text, names in texts.items():
            others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            path = f"{self.directory}/{names[0]}"
            found.append(
                FileFault(path, FileFaultKind.LEFTOVER, text + others, None, offset_of(names[0]), is_note=True)
            )
        return found


def _noting(transactions: Transactions, report: PartitionReport) -> Callable[[int, BatchHeader, memoryview], None]:
    def note(position: int, header: BatchHeader, data: memoryview) -> None:
        report.batches += 1
        if header.is_transactional:
            try:
                transactions.note(header, data)
            except RecordsRejected:
                transactions.is_whole = False

    return note


def _unreadable(error: CheckpointError, kind: FileFaultKind, offset: int | None = None) -> FileFault:
    return FileFault(error.path, kind, str(error).removeprefix(f"{error.path}: "), None, offset)


def verify_partition(
    disk: Disk,
    directory: str,
    *,
    with_records: bool = True,
    epochs_below: int = EVERYWHERE,
    follows: Follows | None = None,
) -> PartitionReport:
    """Verifies one partition's directory. Never raises an error because of its contents."""
    return PartitionVerification(
        disk, directory, with_records=with_records, epochs_below=epochs_below, follows=follows
    ).run()


def check_metadata_snapshot(disk: Disk, path: str) -> list[FileFault]:
    """Checks a `.checkpoint` of the metadata log: batches from offset 0 on, a header as the first record and a footer
    as the last."""
    kinds: list[int | None] = []

    def note(position: int, header: BatchHeader, data: memoryview) -> None:
        if header.is_control:
            kinds.extend(control_type(record) for record in decode_batch(data))
        else:
            kinds.append(None)

    try:
        scan = scan_segment(disk, path, 0, expected_offset=0, end_offset=None, with_records=True, on_batch=note)
    except RecordsRejected as rejected:
        return [FileFault(path, FileFaultKind.RECORDS, str(rejected))]
    if scan.faults:
        return scan.faults
    if kinds[:1] != [ControlType.SNAPSHOT_HEADER]:
        return [FileFault(path, FileFaultKind.RECORDS, "the snapshot does not begin with a header", 0, 0)]
    if kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        return [
            FileFault(
                path, FileFaultKind.TORN, "the snapshot does not end with a footer", scan.size_bytes, scan.next_offset
            )
        ]
    return []


# Data directories


class RecoveryPointFiles:
    """The recovery points of a data directory's logs: each log is complete below its own, with all its files. A broker
    recovers the part above when it starts; until then other files, such as the epoch checkpoint, can lack it without a
    fault."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._offsets: Mapping[TopicPartition, int] = {}
        names = frozenset(disk.list_dir(directory))
        # Copies of partitions without their data directory are assumed to be complete.
        self._are_all_whole = META_PROPERTIES not in names or CLEAN_SHUTDOWN_FILE in names
        if RECOVERY_POINT_CHECKPOINT in names:
            path = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
            with suppress(CheckpointError):  # `check_directory` reports it
                self._offsets = decode_offsets(path, disk.read(path))

    def of(self, directory: str) -> int:
        """Returns the recovery point of the partition in this directory."""
        if self._are_all_whole:
            return EVERYWHERE
        parsed = parse_dir_name(directory.rpartition("/")[2])
        return 0 if parsed is None else self._offsets.get(parsed.topic_partition, 0)


def partition_dirs(disk: Disk, directory: str) -> tuple[list[str], list[FileFault]]:
    """Returns the directories of live partitions in a data directory, and notes on the others."""
    found, notes = [], []
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        parsed = parse_dir_name(name)
        if parsed is None or not disk.is_dir(path):
            continue
        if parsed.suffix:
            text = f"a directory marked {parsed.suffix}; its files were not checked"
            notes.append(FileFault(path, FileFaultKind.LEFTOVER, text, is_note=True))
        else:
            found.append(path)
    return found, notes


def check_directory(disk: Disk, directory: str, reports: Mapping[TopicPartition, PartitionReport]) -> list[FileFault]:
    """Checks the files of a data directory that are not in partitions. `reports`: the verified partitions."""
    names = frozenset(disk.list_dir(directory))
    faults: list[FileFault] = []
    if META_PROPERTIES in names:
        path = f"{directory}/{META_PROPERTIES}"
        try:
            decode_meta_properties(path, disk.read(path))
        except CheckpointError as error:
            faults.append(_unreadable(error, FileFaultKind.CHECKPOINT))
    for name in OFFSET_CHECKPOINTS:
        if name not in names:
            continue
        path = f"{directory}/{name}"
        try:
            offsets = decode_offsets(path, disk.read(path))
        except CheckpointError as error:
            faults.append(_unreadable(error, FileFaultKind.CHECKPOINT))
            continue
        is_exact = name == RECOVERY_POINT_CHECKPOINT and CLEAN_SHUTDOWN_FILE in names
        faults += _beyond(path, offsets, reports, is_exact=is_exact)
    for name in sorted(names):
        if name == BOOTSTRAP_CHECKPOINT:
            faults += check_metadata_snapshot(disk, f"{directory}/{name}")
    return faults


def _beyond(
    path: str,
    offsets: Mapping[TopicPartition, int],
    reports: Mapping[TopicPartition, PartitionReport],
    *,
    is_exact: bool,
) -> list[FileFault]:
    """Returns faults for checkpointed offsets beyond the ends of the logs. With `is_exact`, after a clean shutdown, the
    recovery point must be the log's end.
    """
    faults = []
    for topic_partition, offset in offsets.items():
        report = reports.get(topic_partition)
        if report is None:
            continue
        end = report.log_end_offset
        if offset > end or (is_exact and offset != end):
            text = f"{topic_partition} is at {offset}, but its log ends at {end}"
            faults.append(FileFault(path, FileFaultKind.CHECKPOINT, text, None, offset))
    return faults
