"""Completeness of an opened log: where its segments end, and what is missing between them.

Three sources show what should be there: the recovery point (everything below it was synced), the inventory of a clean
shutdown, and files that belong to a segment, that is an index or a producer snapshot without its `.log`. Offsets
between two segments that none of them shows can be missing because the log, or that of a leader, was compacted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.common.errors import RecordsRejected
from barnabas.records.batch import BatchHeader
from barnabas.storage.checkpoints import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offset_of,
)
from barnabas.storage.recovery.inventory import Sizes
from barnabas.storage.recovery.lost_offsets import Hole, KnownHoles, clip, hole_at, merge, subtract
from barnabas.storage.segment import RollLimits, Segment


class Evidence(NamedTuple):
    """The knowledge of an earlier run about one log: its segments at a clean shutdown, whether it was compacted, and
    its lost offsets.
    """

    #: The sizes at the clean shutdown; None after an unclean one, and after one of Apache Kafka.
    inventory: Sizes | None = None
    #: Whether the log was compacted here, or could have been.
    compacted: bool = True
    known: KnownHoles = KnownHoles()


class SegmentEnd(NamedTuple):
    """The position and offset at which a segment's complete batches end."""

    segment: Segment
    end_offset: int
    #: The number of bytes after that position, which are not a whole batch.
    torn_bytes: int
    #: Offsets that are missing between batches that were scanned.
    gaps: tuple[Hole, ...] = ()


class Findings(NamedTuple):
    """The offsets that a log lacks. `suspected` are gaps as compaction leaves them, in a log that was not compacted
    here."""

    holes: tuple[Hole, ...]
    suspected: tuple[Hole, ...]
    causes: tuple[str, ...]


def find_end(segment: Segment) -> SegmentEnd:
    """Finds the end of a segment from its last index entry on, by the batch headers alone. Sets the segment's size to
    that end, and leaves the file unchanged."""
    size_bytes = segment.size_bytes
    start = segment.entry_position(segment.index.last())
    end, end_offset = _walk(segment, start)
    if end == start > 0:
        end, end_offset = _walk(segment, 0)
    if end != size_bytes:
        segment.version += 1
        segment.size_bytes = end
    return SegmentEnd(segment, end_offset, size_bytes - end)


def _walk(segment: Segment, position: int) -> tuple[int, int]:
    """Reads the batch headers of a segment from `position` on. Returns (position, offset) after the last complete
    batch.
    """
    end_offset = segment.base_offset
    size_bytes = segment.size_bytes
    try:
        for at, header in segment.headers(position):
            if at + header.size_bytes > size_bytes or not _follows(header, end_offset):
                return at, end_offset
            position, end_offset = at + header.size_bytes, header.next_offset
    except RecordsRejected:
        pass
    return position, end_offset


def _follows(header: BatchHeader, next_offset: int) -> bool:
    return header.base_offset >= next_offset and header.last_offset_delta >= 0


class Indexed(NamedTuple):
    """A segment whose indexes were rebuilt from the headers of its batches."""

    position: int
    next_offset: int
    #: (leader epoch, first offset, last offset) of consecutive batches.
    epochs: list[tuple[int, int, int]]
    #: No batch can be at `position`, or the file ends there.
    is_broken: bool


def index_by_headers(segment: Segment, limits: RollLimits, until_offset: int) -> Indexed:
    """Rebuilds the indexes of the part that was synced, before `until_offset`. Checksums are not verified: a corrupt
    batch stays in place, and whatever reads it reports it."""
    segment.open_clean()
    size_bytes = segment.size_bytes
    rows, is_broken = _headers_before(segment, until_offset)
    segment.begin_rebuild()
    position, next_offset = 0, segment.base_offset
    epochs: list[tuple[int, int, int]] = []
    for header in rows:
        epoch = header.partition_leader_epoch
        if epochs and epoch == epochs[-1][0]:
            epochs[-1] = epoch, epochs[-1][1], header.last_offset
        elif epoch > (epochs[-1][0] if epochs else -1):
            epochs.append((epoch, header.base_offset, header.last_offset))
        segment.note(header.size_bytes, header.last_offset, header.max_timestamp, limits)
        position, next_offset = position + header.size_bytes, header.next_offset
    return Indexed(position, next_offset, epochs, is_broken or position == size_bytes)


def _headers_before(segment: Segment, until_offset: int) -> tuple[list[BatchHeader], bool]:
    rows: list[BatchHeader] = []
    next_offset = segment.base_offset
    try:
        for at, header in segment.headers(0):
            if at + header.size_bytes > segment.size_bytes or not _follows(header, next_offset):
                return rows, True
            if header.next_offset > until_offset:
                return rows, False
            rows.append(header)
            next_offset = header.next_offset
    except RecordsRejected:
        return rows, True
    return rows, False


def orphans(names: Collection[str]) -> list[int]:
    """Returns the base offsets of index files whose `.log` does not exist, not even as `.deleted`."""
    logs = {
        name.removesuffix(DELETED_SUFFIX) for name in names if name.removesuffix(DELETED_SUFFIX).endswith(LOG_SUFFIX)
    }
    found = {
        offset
        for name in names
        if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        and (offset := offset_of(name)) is not None
        and file_name(offset, LOG_SUFFIX) not in logs
    }
    return sorted(found)


def find_holes(
    ends: Sequence[SegmentEnd], missing: Sequence[int], evidence: Evidence, expected_end: int, synced_before: int
) -> Findings:
    """Compares the segments with the offsets that should exist. `missing` are segments that existed. `expected_end`:
    the log had every offset below it. `synced_before`: after an unclean shutdown, the end of the synced part."""
    bases = [end.segment.base_offset for end in ends]
    followers = sorted({*bases, *missing, expected_end})

    def to_next(start: int, base: int) -> Hole:
        return Hole(start, next((other for other in followers if other > base), start))

    evident = [to_next(base, base) for base in missing]
    causes = [f"{file_name(base, LOG_SUFFIX)} is missing" for base in missing]
    for end in ends:
        base = end.segment.base_offset
        had = 0 if evidence.inventory is None else evidence.inventory.get(base, 0)
        if end.torn_bytes:
            causes.append(
                f"{end.torn_bytes} bytes from byte {end.segment.size_bytes} of {end.segment.log_path} are lost"
            )
            evident.append(to_next(end.end_offset, base))
        elif end.segment.size_bytes < had:
            causes.append(f"{end.segment.log_path} has lost its last {had - end.segment.size_bytes} bytes")
            evident.append(to_next(end.end_offset, base))
    tail = Hole(ends[-1].end_offset, expected_end) if ends else Hole(0, expected_end)
    gaps = clip(_gaps(ends, missing), 0, synced_before)
    inner = [] if evidence.compacted else [gap for end in ends for gap in end.gaps]
    # After a clean shutdown, only a log that contradicts its recovery point is scanned.
    certain = inner if evidence.inventory is not None else []
    everywhere = merge([*gaps, tail, *certain])
    evident += [*certain, tail, *evidence.known.found, *evidence.known.accepted]
    holes = merge(part for hole in evident for part in clip(everywhere, hole.start, hole.end))
    done = [hole for hole in evidence.known.accepted if ends and hole.end <= bases[0]]
    holes = subtract(holes, done)
    is_known = evidence.inventory is not None or evidence.compacted
    suspected = merge(hole for hole in (*(() if is_known else gaps), *inner) if hole_at(holes, hole.start) is None)
    return Findings(holes, suspected, tuple(causes) if holes else ())


def missing_segments(evidence: Evidence, names: Collection[str], bases: Sequence[int], synced_before: int) -> list[int]:
    """Returns the base offsets of segments that existed and are missing. `names` are the files as the last run left
    them; segments that begin at or above `synced_before` were not synced."""
    if evidence.inventory is not None:
        return [base for base in evidence.inventory if base not in bases]
    found = set(orphans(names))
    if not evidence.compacted:
        # A producer snapshot is taken where a segment begins.
        snapshots = {offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)}
        found |= {offset for offset in snapshots if offset is not None and bases and bases[0] < offset < bases[-1]}
    return sorted(base for base in found - set(bases) if base < synced_before)


def _gaps(ends: Sequence[SegmentEnd], missing: Sequence[int]) -> tuple[Hole, ...]:
    """Returns the offsets missing between the segments, and before the first if there is evidence of an earlier one."""
    found = [Hole(end.end_offset, following.segment.base_offset) for end, following in pairwise(ends)]
    if ends and missing and missing[0] < ends[0].segment.base_offset:
        found.append(Hole(missing[0], ends[0].segment.base_offset))
    return merge(found)
