"""The comparison of one log's files with its batches, with each other, and with what the broker has in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.types import INTERNAL_TOPICS
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.faulty_disk import FaultyDisk, durable_bytes
from barnabas.simulation.log_files import LogFiles, SavedProducer, SegmentFiles, read_log
from barnabas.simulation.log_rules import (
    ProducerDict,
    wrong_aborted,
    wrong_epochs,
    wrong_index,
    wrong_producers,
    wrong_times,
)
from barnabas.storage.log import Log

#: Producer id, first offset, offset of the marker, LSO.
_Aborted = tuple[int, int, int, int]


class Checkpoints(NamedTuple):
    """The entries of one log in the checkpoints of its directory, 0 where there is none."""

    recovery_point: int
    log_start_offset: int
    cleaned_to: int


def wrong_log(disk: FaultyDisk, wall_ms: int, log: Log, said: Checkpoints) -> str | None:
    """Compares all redundant data in the files of a log. The caller exempts the reads from time and faults."""
    files = read_log(disk, log.directory)
    if log.segments.active.has_files and [s.base_offset for s in files.segments] != list(log.segments.bases):
        return f"the segments are {log.segments.bases}, the files {[s.base_offset for s in files.segments]}"
    if files.segments and files.segments[-1].end_offset != log.log_end_offset:
        return f"the LEO is {log.log_end_offset}, the last batch ends at {files.segments[-1].end_offset}"
    if said.log_start_offset > log.log_start_offset:
        return f"the log start offset is {log.log_start_offset}, its checkpoint says {said.log_start_offset}"
    for place, point in (("checkpoint", said.recovery_point), ("log", log.recovery_point)):
        unsynced = _first_unsynced(disk, files, point)
        if unsynced is not None:
            return f"the recovery point of the {place} is {point}, the batch at {unsynced} is not synced"
    # Compaction removes what the replay of producers needs. A log that was just opened has the default settings.
    is_compacted = log.config.is_compacted or log.topic_partition.topic in INTERNAL_TOPICS
    is_cleaned = said.cleaned_to > 0 or (is_compacted and len(files.segments) > 1)
    wrong = _wrong_epochs(log, files) or _wrong_segments(log, files)
    return wrong or (None if is_cleaned else _wrong_producers(disk, wall_ms, log, files))


def wrong_files(disk: MemoryDisk, wall_ms: int, log: Log) -> str | None:
    """Compares the redundant data in the files of a log that was not compacted and is flushed."""
    files = read_log(disk, log.directory)
    wrong = _wrong_epochs(log, files) or _wrong_segments(log, files)
    return wrong or _wrong_producers(disk, wall_ms, log, files)


def synced_end(disk: FaultyDisk, files: LogFiles) -> int:
    """Returns the end of the batches that a power failure leaves, without a gap."""
    end = files.segments[0].base_offset if files.segments else 0
    for segment in files.segments:
        safe = durable_bytes(disk, segment.path)
        for batch in segment.batches:
            if batch.position + batch.size > safe:
                return end
            end = batch.last_offset + 1
    return end


def _first_unsynced(disk: FaultyDisk, files: LogFiles, recovery_point: int) -> int | None:
    """Returns the first batch below the recovery point that a power failure can take."""
    for segment in files.segments:
        if segment.base_offset >= recovery_point or not segment.batches:
            continue
        safe = durable_bytes(disk, segment.path)
        if safe < segment.whole_bytes:
            for batch in segment.batches:
                if batch.base_offset < recovery_point and batch.position + batch.size > safe:
                    return batch.base_offset
    return None


def _wrong_epochs(log: Log, files: LogFiles) -> str | None:
    first = max(log.log_start_offset, files.segments[0].base_offset) if files.segments else 0
    known = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
    wrong = wrong_epochs(known, files.batches(), first, log.log_end_offset)
    if wrong is not None:
        return f"in memory, {wrong}"
    # A kill before the checkpoint of log start offsets makes a log begin earlier than its epochs on file: opening it
    # restores the epochs of its first batches.
    begins = max(first, files.epochs[0][1]) if files.epochs else first
    wrong = wrong_epochs(files.epochs, files.batches(), begins, log.recovery_point)
    return None if wrong is None else f"in leader-epoch-checkpoint, {wrong}"


def _wrong_segments(log: Log, files: LogFiles) -> str | None:
    for segment, own in zip(files.segments, log.segments, strict=False):
        if segment.whole_bytes != segment.log_bytes or own.size_bytes != segment.log_bytes:
            sizes = f"{segment.log_bytes} bytes, {segment.whole_bytes} in batches, {own.size_bytes} known"
            return f"{segment.path} has {sizes}"
        # The last entries of a rolled segment wait in memory while there is no space.
        is_complete = own is not log.segments.active and not own.time_index.is_loaded
        wrong = wrong_index(segment) or wrong_times(segment, is_complete=is_complete)
        if wrong is not None:
            return f"{segment.base_offset}: {wrong}"
    return None


def _wrong_producers(disk: MemoryDisk, wall_ms: int, log: Log, files: LogFiles) -> str | None:
    """Compares producer snapshots, aborted transactions and the producers in memory with a replay of the log."""
    if not files.segments:
        return None
    known = ProducerDict(files.segments[0].base_offset)
    waiting = sorted(files.snapshots)
    start = log.log_start_offset

    def check_snapshots(end: int) -> str | None:
        while waiting and waiting[0] <= end:
            offset = waiting.pop(0)
            said = {producer.producer_id: producer for producer in files.snapshots[offset]}
            path = f"{log.directory}/{offset:020d}.snapshot"
            expires_ms = disk.modified_ms(path) - log.producers.expiration_ms
            if (wrong := wrong_producers(said, known, start, expires_ms)) is not None:
                return f"{path}: {wrong}"
        return None

    for batch in files.batches():
        if waiting and (wrong := check_snapshots(batch.base_offset)) is not None:
            return wrong
        known.add(batch)
    if (wrong := check_snapshots(log.log_end_offset)) is not None:
        return wrong
    if waiting:
        return f"there are producer snapshots of {waiting}, the log ends at {log.log_end_offset}"
    expires_ms = wall_ms - log.producers.expiration_ms
    wrong = wrong_producers(_producers_of(log), known, start, expires_ms)
    return f"in memory, {wrong}" if wrong is not None else _wrong_aborted(log, files, known)


def _wrong_aborted(log: Log, files: LogFiles, known: ProducerDict) -> str | None:
    for segment, own in zip(files.segments, log.segments, strict=False):
        if not known.aborted and not segment.aborted:
            continue
        said = _aborted_of(segment, own.txn_index.entries() if own.txn_index.is_loaded else [])
        wrong = wrong_aborted(segment, said, known.aborted, log.log_start_offset, is_complete=True)
        if wrong is not None:
            return f"{segment.base_offset}: {wrong}"
    return None


def _aborted_of(segment: SegmentFiles, in_memory: Sequence[tuple[int, int, int, int]]) -> list[_Aborted]:
    """Returns the entries of the file, and those that wait in memory for space on the disk."""
    return [*segment.aborted, *in_memory[len(segment.aborted) :]]


def _producers_of(log: Log) -> dict[int, SavedProducer]:
    """Returns the producers in memory, as a snapshot would have them."""
    found = {}
    for producer_id, entry in log.producers.producers.items():
        batch = entry.batches[-1] if entry.batches else None
        found[producer_id] = SavedProducer(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            -1 if batch is None else batch.last_offset,
            0 if batch is None else batch.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        )
    return found
