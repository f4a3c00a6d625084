"""Retention: how many of a log's oldest segments can be deleted, by log start offset, by age and by size.

`storage.upkeep` checks all logs every `log.retention.check.interval.ms`. `Log.delete_old_segments` uses the log's
current configuration, so a changed `retention.ms` applies from the next check on.

The age of a segment counts from its largest timestamp; without one, from the file's last modification. An empty active
segment is never deleted; other empty segments, which compaction leaves, can be.
"""

from __future__ import annotations

from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.storage.checkpoints import LOG_SUFFIX
from barnabas.storage.segments import Segments


def below_log_start(segments: Segments, log_start_offset: int) -> int:
    """Counts the segments that end at or before the log start offset."""
    bases = segments.bases
    count = 0
    while count + 1 < len(bases) and bases[count + 1] <= log_start_offset:
        count += 1
    return count


def expired(segments: Segments, config: LogConfig, wall_ms: int, disk: Disk) -> int:
    """Counts the segments in which every record is older than `retention.ms`."""
    if config.retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if segment.size_bytes == 0 and segment is segments.active:
            break
        newest = segment.largest_timestamp()[0]
        if newest < 0:
            newest = disk.modified_ms(segment.path(LOG_SUFFIX))
        if wall_ms - newest <= config.retention_ms:
            break
        count += 1
    return count


def surplus(segments: Segments, config: LogConfig) -> int:
    """Counts the segments without which the log still has `retention.bytes`."""
    if config.retention_bytes < 0:
        return 0
    left = segments.size_bytes - config.retention_bytes
    count = 0
    for segment in segments:
        if (segment.size_bytes == 0 and segment is segments.active) or left < segment.size_bytes:
            break
        left -= segment.size_bytes
        count += 1
    return count
