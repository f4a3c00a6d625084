"""The part of a log that compaction can process, and how much it would gain.

    0 ........ first dirty offset ........ first uncleanable offset ........ active segment ... LEO
      clean: compacted before     dirty: to be compacted     not yet: young, undecided, not replicated

Nothing is cleaned at or above the last stable offset, in the active segment, or in segments with records younger than
`min.compaction.lag.ms`. Segments are cleaned as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.host import Disk
from barnabas.storage.checkpoints import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment

_MAX_INT = 0x7FFFFFFF


class Cleanable(NamedTuple):
    """The part of one log that can be cleaned. `ratio` is the share of dirty bytes in it."""

    first_dirty: int
    first_uncleanable: int
    dirty_bytes: int
    ratio: float
    #: Whether its oldest dirty record is older than `max.compaction.lag.ms`.
    is_overdue: bool

    def is_worth_it(self, min_ratio: float) -> bool:
        return self.ratio > min_ratio or (self.is_overdue and self.dirty_bytes > 0)


def first_dirty_offset(log: Log, cleaned_to: int | None) -> int:
    """Returns the offset where the last pass ended if the log contains it; otherwise the log start offset, as all is
    dirty."""
    if cleaned_to is None or not log.log_start_offset <= cleaned_to <= log.log_end_offset:
        return log.log_start_offset
    return cleaned_to


def cleanable(log: Log, cleaned_to: int | None, high_watermark: int, wall_ms: int) -> Cleanable:
    """Returns the part of this log that can be cleaned, with the share of dirty bytes. Raises OSError."""
    segments = log.segments
    first_dirty = first_dirty_offset(log, cleaned_to)
    limit = min(log.last_stable_offset(high_watermark), segments.active.base_offset)
    dirty = [s for s in segments.from_offset(first_dirty) if s is not segments.active]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (s.base_offset for s in dirty if s.largest_timestamp()[0] > wall_ms - lag_ms)
        limit = min(limit, next(young, limit))
    limit = max(first_dirty, limit)
    first_uncleanable = segments[segments.place_of(limit)].base_offset
    clean_bytes = sum(s.size_bytes for s in segments if s.base_offset < first_dirty)
    dirty_bytes = sum(s.size_bytes for s in dirty if s.base_offset < first_uncleanable)
    total = clean_bytes + dirty_bytes
    return Cleanable(
        first_dirty,
        first_uncleanable,
        dirty_bytes,
        dirty_bytes / total if total else 0.0,
        _is_overdue(dirty, wall_ms - max(log.config.max_compaction_lag_ms, 0)),
    )


def _is_overdue(dirty: Sequence[Segment], until_ms: int) -> bool:
    if until_ms <= 0:
        return False
    return any(0 < s.first_timestamp() < until_ms for s in dirty)


def group_segments(
    disk: Disk, segments: Sequence[Segment], segment_bytes: int, index_bytes: int, end_offset: int
) -> list[list[Segment]]:
    """Groups neighbours that fit together into one segment, so that segments do not become ever smaller."""
    groups: list[list[Segment]] = []
    sizes = (0, 0, 0)
    for place, segment in enumerate(segments):
        own = (segment.size_bytes, _size(disk, segment, INDEX_SUFFIX), _size(disk, segment, TIME_INDEX_SUFFIX))
        total = (sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2])
        last_offset = (segments[place + 1].base_offset if place + 1 < len(segments) else end_offset) - 1
        if (
            groups
            and total[0] <= segment_bytes
            and max(total[1:]) <= index_bytes
            and (segment.size_bytes == 0 or last_offset - groups[-1][0].base_offset <= _MAX_INT)
        ):
            groups[-1].append(segment)
            sizes = total
        else:
            groups.append([segment])
            sizes = own
    return groups


def _size(disk: Disk, segment: Segment, suffix: str) -> int:
    path = segment.path(suffix)
    return disk.size(path) if disk.exists(path) else 0
