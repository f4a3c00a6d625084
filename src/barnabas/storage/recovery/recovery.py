"""Opening of a log: which parts are trusted, scanned and cut off. Each row prevents a data loss that has occurred.

    what is found                                what is done
    @A  `.deleted`, `.cleaned`                   removed: their records are in other files, or were deleted
    @S  `.swap`                                  compaction was complete except for the renaming: finish it, and remove
                                                 the segments it replaces; not if a `.cleaned` is at or below it
    @B  an index without its `.log`              removed
    @C  clean shutdown (`LogDirectories.open`)   sizes and indexes trusted; LEO from the last index entry on
    @D  an index file is missing, or torn        that segment scanned, its indexes rebuilt
    @E  unclean, below the recovery point        as @C: it was synced before
    @F  unclean, above the recovery point        scanned batch by batch (size, CRC-32C, offsets); the tail is cut at the
                                                 first that is not intact (`Segment.end_rebuild`), all later segments
                                                 are removed; `rescan` has how the scan begins in the middle of a
                                                 segment
    @G  log start offset above the LEO           the log starts anew there, empty
    @I  no `.log`                                a log without a record; the first append creates its files
    @H  leader epochs beyond the LEO             cut with it; missing ones of scanned batches, and of the first batches,
                                                 are restored
    @L  LEO below the recovery point; a missing  reported (`Log.losses`) and left unchanged: what becomes of it depends
        segment, or one that ends inside a batch  on the other replicas (`hole_filling`)
    @J  clean, junk after the last batch         cut, and reported
    @K  clean, LEO above the recovery point      scanned from there on, as @F: a base or last offset is wrong
    @M  `partition.metadata` cannot be read      treated as absent: the metadata contains the topic id

Indexes only repeat what is in the `.log`, so they are rebuilt and never trusted against it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.records.batch import BatchHeader
from barnabas.storage.checkpoints import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    CheckpointError,
    EpochEntry,
    decode_partition_metadata,
    file_name,
    offset_of,
)
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.log import Log, LogParts
from barnabas.storage.producer_replay import note_producer, replay_producers, take_snapshot
from barnabas.storage.producers import DEFAULT_EXPIRATION_MS, ProducerStateManager
from barnabas.storage.recovery.index_check import are_indexes_complete
from barnabas.storage.recovery.lost_offsets import Damage, Hole, Losses, clip, subtract
from barnabas.storage.recovery.missing_epochs import find_missing_epochs
from barnabas.storage.recovery.rescan import (
    EpochRun,
    Follows,
    Scanned,
    ScanStart,
    end_of_batches,
    scan,
    starts_of,
    synced_part,
    uncontradicted,
)
from barnabas.storage.recovery.segment_ends import (
    Evidence,
    SegmentEnd,
    find_end,
    find_holes,
    index_by_headers,
    missing_segments,
)
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.segments import LogServices, Segments

__all__ = ["LogServices", "Opening", "is_unused", "open_log"]

_NO_END: Final = 1 << 63
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Cut(NamedTuple):
    """The end of the intact part of a damaged log, and the data after it that is removed."""

    path: str
    position: int
    size_bytes: int
    end_offset: int
    #: Segments after the damaged one.
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """The facts about a log that are known before it is opened."""

    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    #: The topic's id; None takes the one in `partition.metadata`.
    topic_id: bytes | None = None
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    #: The checkpointed high watermark; None for a log that is new in this directory.
    high_watermark: int | None = None
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS
    #: Whether the log was never compacted: if a segment then ends before the next one begins, its tail was lost.
    contiguous: bool = False
    #: The known state of the files. Without it no loss is detected, and unreadable data is cut off.
    evidence: Evidence | None = None
    #: Returns whether an intact batch can follow those before it; the scan ends at the first that cannot.
    follows: Follows | None = None
    #: The callback before anything is cut off; an exception prevents the cut.
    on_cut: Callable[[Cut], None] | None = None


class DamagedLogError(CheckpointError):
    """The error for an unreadable log that should be intact. It is left unchanged: intact records follow the damage."""


def open_log(services: LogServices, opening: Opening) -> Log:
    """Opens the log in this directory, or creates it. Raises OSError, CheckpointError, DamagedLogError."""
    try:
        try:
            return _open_log(services, opening)
        except RecordsRejected:
            if opening.evidence is None or not opening.clean:
                raise
            # The clean shutdown left something else: trust nothing but the recovery point.
            return _open_log(services, replace(opening, clean=False))
    except RecordsRejected as rejected:
        advice = (
            "`barnabas log verify` shows where; `barnabas log repair` cuts the log there, and keeps the rest in a copy"
        )
        raise DamagedLogError(opening.directory, f"{rejected.message}; {advice}") from rejected


def _open_log(services: LogServices, opening: Opening) -> Log:
    disk, directory = services.disk, opening.directory
    found: Sequence[str] = ()
    names: list[str] = []
    if disk.is_dir(directory):
        found = disk.list_dir(directory)
        names = _without_leftovers(disk, directory)
    else:
        disk.make_dirs(directory)
    notes: list[str] = []
    topic_id, is_identified = _topic_id(disk, opening, names, notes)
    bases = [offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None]
    segments = Segments(services, directory, bases)
    epochs = LeaderEpochCache(disk, directory)
    if LEADER_EPOCH_CHECKPOINT in names:
        _load_epochs(epochs)
    if not len(segments) and opening.log_start_offset == 0:
        segments.begin()
    elif not len(segments):
        segments.add(opening.log_start_offset)
        names += [file_name(opening.log_start_offset, suffix) for suffix in _INDEX_SUFFIXES[:2]]
    log_start_offset = max(opening.log_start_offset, segments.bases[0])
    recovery = _Recovery(services, opening, names, segments, epochs)
    log_end_offset = recovery.run(log_start_offset)
    losses = recovery.losses(found, log_start_offset, log_end_offset)
    notes += losses.notes
    log = Log(
        services,
        opening.topic_partition,
        topic_id,
        opening.config,
        LogParts(
            segments,
            epochs,
            recovery.producers,
            log_start_offset,
            log_end_offset,
            log_end_offset if opening.clean else min(opening.recovery_point, log_end_offset),
            losses._replace(notes=tuple(notes)),
        ),
    )
    if not is_identified and topic_id != ZERO_UUID:
        log.identify(topic_id)
    if log_start_offset > log_end_offset:
        log.truncate_fully_and_start_at(log_start_offset)  # @G
    else:
        expected_end = log_end_offset if losses.damage is None else losses.damage.expected_end
        epochs.truncate_from_end(max(log_end_offset, expected_end))  # @H
        epochs.truncate_from_start(min(log_start_offset, losses.starts_at))
        find_missing_epochs(epochs, segments, log_start_offset, log_end_offset)
        log.log_start_offset = min(log_start_offset, losses.starts_at)
    if losses.damage is not None:
        log.recovery_point = losses.damage.expected_end
    segments.release()
    return log


def is_unused(disk: Disk, directory: str) -> bool:
    """Returns whether this log never had a record: it was just created, perhaps incompletely."""
    logs = [name for name in disk.list_dir(directory) if name.endswith(LOG_SUFFIX)]
    return all(offset_of(name) == 0 and disk.size(f"{directory}/{name}") == 0 for name in logs)


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    """Completes or undoes unfinished deletions and compactions (@A, @S and @B of the module table). Returns the names
    of the remaining files.
    """
    names = set(disk.list_dir(directory))
    cleaned = [offset_of(name) or 0 for name in names if name.endswith(CLEANED_SUFFIX)]
    doomed = {name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX))}
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX)}
    if cleaned:
        doomed |= {name for name in swaps if (offset_of(name) or 0) >= min(cleaned)}
    # `.swap` files first: without the `.cleaned` files they would count as complete.
    for name in sorted(doomed, key=lambda name: (not name.endswith(SWAP_SUFFIX), name)):
        disk.remove(f"{directory}/{name}")
    names -= doomed
    if swaps - doomed:
        names = _finish_swap(disk, directory, names, swaps - doomed)
    logs = {name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX)}
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if "." + suffix in _INDEX_SUFFIXES and stem not in logs:
            disk.remove(f"{directory}/{name}")
            names.remove(name)
    return sorted(names)


def _finish_swap(disk: Disk, directory: str, names: set[str], swaps: set[str]) -> set[str]:
    """Replaces the segments whose offsets the compacted ones span. Returns the names of the remaining files."""
    logs = sorted(name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    if logs:
        first = offset_of(logs[0]) or 0
        end = end_of_batches(disk, f"{directory}/{logs[-1]}", offset_of(logs[-1]) or 0)
        for name in sorted(names - swaps):
            offset = offset_of(name)
            if offset is not None and first <= offset < end and not name.endswith(SNAPSHOT_SUFFIX):
                disk.remove(f"{directory}/{name}")
                names.remove(name)
        # Durable before the first `.swap` gets its name, because afterwards the span would be unknown.
        disk.sync_dir(directory)
    for name in sorted(swaps):
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
        names.remove(name)
        names.add(name.removesuffix(SWAP_SUFFIX))
    return names


def _topic_id(disk: Disk, opening: Opening, names: list[str], notes: list[str]) -> tuple[bytes, bool]:
    """Returns the topic id of a log from `partition.metadata`, or else from the metadata, and whether the file has
    it."""
    path = f"{opening.directory}/{PARTITION_METADATA}"
    if PARTITION_METADATA in names:
        try:
            return decode_partition_metadata(path, disk.read(path)), True
        except CheckpointError as error:
            if opening.evidence is None:
                raise
            notes.append(f"its topic id is taken from the metadata, because the file cannot be read: {error}")  # @M
    return ZERO_UUID if opening.topic_id is None else opening.topic_id, False


def _load_epochs(epochs: LeaderEpochCache) -> None:
    try:
        epochs.load()
    except CheckpointError:
        # A torn checkpoint is replaced from the batches, as far as they are scanned.
        epochs.clear()
        epochs.persist()


class _Recovery:
    """A log while it is opened: its parts, and the faults that were found."""

    __slots__ = (
        "_disk",
        "_end_offset",
        "_ends",
        "_is_any_broken",
        "_limits",
        "_names",
        "_notes",
        "_opening",
        "_wall_ms",
        "epochs",
        "producers",
        "segments",
    )

    def __init__(
        self, services: LogServices, opening: Opening, names: list[str], segments: Segments, epochs: LeaderEpochCache
    ) -> None:
        self._disk = services.disk
        self._wall_ms = services.wall_ms()
        self._opening = opening
        self._names = frozenset(names)
        self._limits = RollLimits(opening.config, 0)
        #: Messages to report.
        self._notes: list[str] = []
        self._is_any_broken = False
        #: The LEO of a log whose files match its inventory, else -1.
        self._end_offset = -1
        #: The ends of the segments, as far as they were determined.
        self._ends: list[SegmentEnd] = []
        self.segments = segments
        self.epochs = epochs
        self.producers = ProducerStateManager(
            services.disk,
            opening.directory,
            opening.topic_partition,
            expiration_ms=opening.producer_expiration_ms,
            names=names,
        )

    def run(self, log_start_offset: int) -> int:
        """Sets each segment's size, removes those after the first damage, and brings the producer state to the LEO.
        Returns the LEO."""
        segments, opening = self.segments, self._opening
        self.producers.remove_stray_snapshots(segments.bases)
        if not segments.active.has_files:
            self._replay(0, 0)
            return 0
        bases = segments.bases
        unverified = 0 if not opening.clean else len(bases)
        while unverified + 1 < len(bases) and bases[unverified + 1] <= opening.recovery_point:
            unverified += 1
        for segment in list(segments)[:unverified]:
            self._open_synced(segment)
        self._find_ends(list(segments)[:unverified])
        if unverified == len(bases):
            end_offset = self._ends[-1].end_offset if self._ends else self._end_offset
            if end_offset < 0:
                end_offset = segments.active.end_offset()
            if opening.evidence is not None and 0 < opening.recovery_point < end_offset:
                # @K: a clean shutdown syncs the whole log. `open_log` opens it again, as after an unclean one.
                raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "the log ends after its recovery point")
            self._cut_junk(end_offset)
            self._replay(log_start_offset, end_offset)
            return end_offset
        return self._rescan(list(segments)[unverified:], log_start_offset)

    def _open_synced(self, segment: Segment) -> None:
        """Opens a segment that was synced: its indexes are trusted, or rebuilt if they are missing or torn (@C, @D and
        @E of the module table).
        """
        if all(file_name(segment.base_offset, suffix) in self._names for suffix in _INDEX_SUFFIXES[:2]):
            segment.open_clean()
            if self._are_indexes_trusted(segment):
                return
        if self._opening.evidence is not None:
            indexed = index_by_headers(segment, self._limits, _NO_END)
            self._take_epochs([EpochEntry(epoch, first) for epoch, first, _ in indexed.epochs])
            segment.become_inactive()
            segment.open_clean()
            self._is_any_broken = self._is_any_broken or indexed.position < segment.size_bytes
        else:
            self._take_epochs(starts_of(scan(segment, self._limits, ScanStart(0, segment.base_offset), _ignore).epochs))
            segment.end_rebuild()
        segment.index.sync()
        segment.time_index.sync()

    def _find_ends(self, synced: list[Segment]) -> None:
        """Determines the ends of the segments that are not scanned, unless they match the inventory."""
        evidence = self._opening.evidence
        if evidence is None:
            return
        inventory = None if self._is_any_broken else evidence.inventory
        is_same = inventory is not None and list(inventory.items()) == [(s.base_offset, s.size_bytes) for s in synced]
        last = find_end(synced[-1]) if is_same else None
        if last is None or last.torn_bytes:
            self._ends = [*map(find_end, synced[:-1]), *(last or find_end(segment) for segment in synced[-1:])]
        else:
            self._end_offset = last.end_offset

    def _cut_junk(self, end_offset: int) -> None:
        """Cuts bytes after the last batch that are not a batch, and reports this. It is called only after a clean
        shutdown (@J of the module table).
        """
        if self._ends and self._ends[-1].torn_bytes and end_offset >= self._opening.recovery_point:
            segment, torn_bytes = self._ends[-1].segment, self._ends[-1].torn_bytes
            segment.file.truncate(segment.size_bytes)
            segment.file.sync()
            self._ends[-1] = self._ends[-1]._replace(torn_bytes=0)
            self._notes.append(f"{torn_bytes} bytes after its last batch, at offset {end_offset}, are cut off")

    def losses(self, found: Sequence[str], log_start_offset: int, log_end_offset: int) -> Losses:
        """Returns the losses of the log: offsets that should be there and are missing (@L of the module table). `found`
        are the files as the last run left them.
        """
        opening, evidence = self._opening, self._opening.evidence
        if evidence is None:
            return Losses()
        known, bases = evidence.known, self.segments.bases
        there = bases if self.segments.active.has_files else []
        synced_before = _NO_END if opening.clean else opening.recovery_point
        missing = missing_segments(evidence, found, there, synced_before)
        snapshots = [offset for name in found if name.endswith(SNAPSHOT_SUFFIX) and (offset := offset_of(name))]
        is_whole = evidence.inventory is not None and not self._ends and self.segments.active.has_files
        expected_end = max(log_end_offset, *(hole.end for hole in (*known.found, *known.accepted)), 0)
        if opening.recovery_point > expected_end:
            confirms = (
                (opening.high_watermark or 0) > log_end_offset
                or max(snapshots, default=0) > log_end_offset
                or max(missing, default=-1) >= log_end_offset
                or bool(self._ends and self._ends[-1].torn_bytes)
            )
            if confirms and not is_whole:
                # Offsets that consumers have seen must not be assigned again either.
                expected_end = max(opening.recovery_point, opening.high_watermark or 0)
            else:
                self._notes.append(
                    f"the recovery point {opening.recovery_point} is beyond the end of the log, {log_end_offset}, and "
                    "no other file shows records there: the checkpoint is treated as wrong"
                )
        elif not opening.clean and (opening.high_watermark or 0) > log_end_offset:
            self._notes.append(
                f"the log ends at {log_end_offset}, and the high watermark was {opening.high_watermark}: the "
                "records in between were not synced before the shutdown, and are lost on this broker"
            )
        ends = self._ends
        if not self.segments.active.has_files:
            ends = []
        elif not ends:
            if expected_end == log_end_offset:
                return Losses(known.accepted, starts_at=_start(known.accepted, bases[0]), notes=tuple(self._notes))
            ends = [find_end(segment) for segment in self.segments]
        findings = find_holes(ends, missing, evidence, expected_end, synced_before)
        holes = clip(findings.holes, opening.log_start_offset, _NO_END)
        accepted = subtract(known.accepted, holes)
        damage = None
        if holes:
            causes = findings.causes or (f"the recovery point is {opening.recovery_point}",)
            damage = Damage(holes, expected_end, log_end_offset, causes)
        starts_at = max(opening.log_start_offset, _start((*holes, *accepted), bases[0]))
        return Losses(accepted, damage, findings.suspected, starts_at, tuple(self._notes))

    def _are_indexes_trusted(self, segment: Segment) -> bool:
        """Returns whether the segment's indexes can be trusted. A segment that was rolled at the recovery point may not
        have had its indexes written; while the disk is full, they wait in memory."""
        opening = self._opening
        following = bisect_right(self.segments.bases, segment.base_offset)
        is_last = not opening.clean and self.segments.bases[following] == opening.recovery_point
        return not is_last or are_indexes_complete(self._disk, segment)

    def _rescan(self, unverified: list[Segment], log_start_offset: int) -> int:
        """Scans the unsynced part batch by batch, and cuts it at the first batch that is not intact (@F of the module
        table). Returns the end offset.
        """
        first, recovery_point = unverified[0], self._opening.recovery_point
        start = synced_part(first, recovery_point)
        indexed = None
        if self._opening.evidence is not None and start.position == 0 and recovery_point > first.base_offset:
            # Synced batches are not cut because one is corrupt, or because an index has no entry for it.
            indexed = index_by_headers(first, self._limits, recovery_point)
            start = ScanStart(indexed.position, indexed.next_offset)
        first.size_bytes = start.position
        saved = [entry for entry in self.epochs.entries if entry.start_offset >= start.offset]
        self.epochs.truncate_from_end(start.offset)
        found: list[EpochRun] = [] if indexed is None else [EpochRun(*run) for run in indexed.epochs]
        self._replay(log_start_offset, start.offset)
        replayed_to = max(self.producers.map_end_offset, log_start_offset)
        for segment in unverified:
            if segment is not first:
                start = ScanStart(0, segment.base_offset)
                if segment.base_offset > replayed_to:
                    self.producers.map_end_offset = segment.base_offset
                    take_snapshot(self.producers)
            elif indexed is not None and indexed.is_broken and start.offset < recovery_point:
                segment.become_inactive()
                self._ends.append(SegmentEnd(segment, start.offset, segment.file.size() - segment.size_bytes))
                continue
            scanned = self._rescan_segment(segment, start, replayed_to, begun=segment is first and indexed is not None)
            found += scanned.epochs
            is_damaged = segment.size_bytes < segment.file.size() or self._has_gap_after(segment)
            behind = unverified[unverified.index(segment) + 1 :]
            if is_damaged:
                self._report_cut(segment, behind)
            self._note_cut(segment)
            segment.end_rebuild()
            segment.release()
            if self._opening.evidence is not None:
                self._ends.append(SegmentEnd(segment, segment.end_offset(), 0, tuple(scanned.gaps)))
            if is_damaged and behind:
                self._drop_segments(behind)
                break
        self._take_epochs([*uncontradicted(saved, found), *starts_of(found)])
        end_offset = self.segments.active.end_offset()
        self.producers.map_end_offset = end_offset
        return end_offset

    def _note_cut(self, segment: Segment) -> None:
        cut_bytes = segment.file.size() - segment.size_bytes
        if cut_bytes:
            self._notes.append(
                f"{cut_bytes} bytes from byte {segment.size_bytes} of {segment.log_path} on were not synced, are not "
                "complete batches, and are cut off"
            )

    def _drop_segments(self, segments: list[Segment]) -> None:
        names = ", ".join(file_name(segment.base_offset, LOG_SUFFIX) for segment in segments)
        self._notes.append(f"{names}: removed, because the segment before was not synced and ends earlier")
        for path in self.segments.drop(segments):
            self._disk.remove(path)

    def _report_cut(self, segment: Segment, behind: list[Segment]) -> None:
        if self._opening.on_cut is not None:
            dropped = tuple(dropped.log_path for dropped in behind)
            end_offset = segment.end_offset()
            self._opening.on_cut(Cut(segment.log_path, segment.size_bytes, segment.file.size(), end_offset, dropped))

    def _has_gap_after(self, segment: Segment) -> bool:
        """Returns whether offsets are missing after this segment: the power failed after the next one's first bytes
        reached the disk, but before this one's tail was synced."""
        following = bisect_right(self.segments.bases, segment.base_offset)
        bases = self.segments.bases
        return self._opening.contiguous and following < len(bases) and segment.end_offset() < bases[following]

    def _rescan_segment(self, segment: Segment, start: ScanStart, replayed_to: int, *, begun: bool) -> Scanned:
        def note(header: BatchHeader, batch: memoryview) -> None:
            if header.last_offset >= replayed_to:
                note_producer(self.producers, header, batch, segment)

        if start.position:
            segment.txn_index.truncate_to(start.offset)
        else:
            segment.txn_index.clear()
        return scan(segment, self._limits, start, note, begun=begun, follows=self._opening.follows)

    def _take_epochs(self, found: list[EpochEntry]) -> None:
        for epoch, start_offset in sorted(found):
            if epoch > self.epochs.latest_epoch:
                self.epochs.assign(epoch, start_offset)

    def _replay(self, log_start_offset: int, end_offset: int) -> None:
        replay_producers(
            self.producers,
            self.segments,
            log_start_offset,
            end_offset,
            self._wall_ms,
            high_watermark=self._opening.high_watermark,
        )


def _start(holes: Iterable[Hole], first_base: int) -> int:
    """Returns the start of the lost range that ends at the first segment, or `_NO_END` if there is no such range."""
    return min((hole.start for hole in holes if hole.end == first_base), default=_NO_END)


def _ignore(header: BatchHeader, batch: memoryview) -> None:
    """Ignores a batch: this scan must not change the producer state."""
