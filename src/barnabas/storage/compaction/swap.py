"""The swap of a compacted segment into the place of those that it was built from.

    1  every `.cleaned` file becomes `.swap`; once all have, opening the log completes the rest
    2  the old files become `.deleted`, to be removed after `file.delete.delay.ms`
    3  every `.swap` file gets its final name

A crash before the end of 1 leaves the old segments, because a remaining `.cleaned` file shows that the swap had not
begun; a later crash leaves the new one. Opening finds the segments to replace by the offsets that the `.swap` files
span. Where the compacted data ends before an old segment begins, an empty `.swap` file represents that segment
meanwhile: without it, the old segment would come back.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Directory, Disk
from barnabas.storage.checkpoints import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    remove_quietly,
)
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment

_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def swap_in(disk: Disk, log: Log, replaced: Sequence[Segment], end_offset: int) -> None:
    """Replaces these segments by the compacted one, which is complete in `.cleaned` files and ends at `end_offset`.

    Raises OSError; for lack of space or descriptors only before anything has changed. Otherwise the next opening of the
    log completes or undoes what is on disk.
    """
    beyond = [segment for segment in replaced[1:] if segment.base_offset >= end_offset]
    placeholders = [
        segment.path(suffix) for segment in beyond for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    ]
    directory = disk.open_dir(log.directory)
    try:
        _write_placeholders(disk, placeholders)
        try:
            _swap(disk, directory, log, replaced, placeholders)
        except OSError as error:
            if is_exhausted(error):
                raise OSError(errno.EIO, f"the swap of a segment is incomplete: {error.strerror}") from error
            raise
    finally:
        directory.close()


def _write_placeholders(disk: Disk, paths: Sequence[str]) -> None:
    """Writes all placeholders or none: a leftover would undo a later swap at the next startup."""
    written: list[str] = []
    try:
        for path in paths:
            written.append(path + CLEANED_SUFFIX)
            disk.write(written[-1], b"")
    except OSError:
        for path in written:
            remove_quietly(disk, path)
        raise


def _swap(disk: Disk, directory: Directory, log: Log, replaced: Sequence[Segment], placeholders: Sequence[str]) -> None:
    first = replaced[0]
    names = [path for suffix in _SUFFIXES if disk.exists((path := first.path(suffix)) + CLEANED_SUFFIX)]
    # Each step is made durable before the next: if names reached the disk out of order, an old segment could vanish
    # without its replacement, or reappear next to it.
    for group in (placeholders, names):
        for path in group:
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        if group:
            directory.sync()
    files: list[str] = []
    for segment in reversed(replaced):
        files += segment.mark_deleted()
    directory.sync()
    for path in reversed(placeholders):
        disk.remove(path + SWAP_SUFFIX)
    for path in names:
        disk.rename(path + SWAP_SUFFIX, path)
    log.segments.replace(replaced)
    for segment in replaced[1:]:
        log.producers.snapshots.delete(segment.base_offset)
    log.signals.keeper.on_segments_deleted(log, files)
