"""Plausibility check of a segment's index files that does not read the whole segment."""

from __future__ import annotations

import struct
from itertools import pairwise

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk
from barnabas.storage.checkpoints import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from barnabas.storage.segment import Segment

_OFFSETS = struct.Struct(">ii")
_TIMES = struct.Struct(">qi")
#: Unsynced index entries are lost at the end of the file, and few batches have to be read to check this many entries.
_LAST_ENTRIES = 8


def are_indexes_complete(disk: Disk, segment: Segment) -> bool:
    """Returns whether both indexes are those of a rolled segment: sound, and the time index ends with the largest
    timestamp, unless that cannot be read. Raises OSError.
    """
    if not are_indexes_sound(disk, segment) or not do_last_entries_fit(segment):
        return False
    try:
        return segment.time_index.last()[0] == segment.largest_timestamp()[0]
    except RecordsRejected:
        return True


def are_indexes_sound(disk: Disk, segment: Segment) -> bool:
    """Returns whether both indexes have whole, ascending entries with positions inside the segment, unlike torn or
    blank indexes. Raises OSError.
    """
    offsets = disk.read(segment.path(INDEX_SUFFIX))
    times = disk.read(segment.path(TIME_INDEX_SUFFIX))
    if len(offsets) % OFFSET_ENTRY_BYTES or len(times) % TIME_ENTRY_BYTES:
        return False
    entries = list(_OFFSETS.iter_unpack(offsets))
    stamps = list(_TIMES.iter_unpack(times))
    return (
        all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        and all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(stamps))
        and all(entry[0] >= 0 and 0 <= entry[1] < segment.size_bytes for entry in entries[:1] + entries[-1:])
        and all(stamp[0] >= 0 and stamp[1] >= 0 for stamp in stamps[:1])
    )


def do_last_entries_fit(segment: Segment) -> bool:
    """Returns whether the last entries of both indexes agree with the batches that they name. Raises OSError."""
    index, time_index = segment.index, segment.time_index
    for place in range(max(0, len(index) - _LAST_ENTRIES), len(index)):
        entry = index.entry(place)
        # No entry names the first batch of a segment: its position is 0 if a power failure tore the entry.
        if not 0 < entry[1] == segment.entry_position(entry):
            return False
    times = range(max(0, len(time_index) - _LAST_ENTRIES), len(time_index))
    return all(segment.confirmed_time(entry) == entry for entry in map(time_index.entry, times))
