"""Putting a compacted segment in the place of those that it was made of.

    1  every `.cleaned` file becomes `.swap`; from the last one on, opening the log finishes what follows
    2  the old files become `.deleted`, to be removed after `file.delete.delay.ms`
    3  every `.swap` file gets its name

A crash before the end of 1 leaves the old segments, for a `.cleaned` file says that the swap had not begun; any later
one the new. Opening finds the segments to replace by the offsets that the `.swap` files span. Where the compacted data
end before an old segment begins, an empty `.swap` file stands for that segment meanwhile: otherwise it would come back.
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
    """The compacted segment of these, complete in `.cleaned` files and ending at `end_offset`, takes their place.

    Raises OSError; from want of room or descriptors only before anything has changed. Otherwise what is on disk is
    finished or undone when the log is opened again.
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
                raise OSError(errno.EIO, f"a swap is half done: {error.strerror}") from error
            raise
    finally:
        directory.close()


def _write_placeholders(disk: Disk, paths: Sequence[str]) -> None:
    """All or none: one that is left behind would undo a later swap at the next start."""
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
    # Each step is sure before the next: where names are not synced in order, an old segment would go without a new one,
    # or come back beside it.
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
