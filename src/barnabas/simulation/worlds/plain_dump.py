"""Complaints of Kafka's DumpLogSegments about the indexes of a segment, found by looking at all batches one by one.

The offsets of an index ascend, and each position is that of a batch; the rest of an entry can be anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.simulation.log_files import SegmentFiles

_NO_TIME = -1


def index_complaints(segment: SegmentFiles) -> Iterator[str]:
    """Yields the lines of both indexes, in the order of the dump of one segment."""
    stem = segment.path.removesuffix(".log")
    wrong = [
        f"  Index offset: {offset}, log offset: {batch.last_offset}"
        for offset, position in segment.offsets
        for batch in segment.batches
        if batch.position == position and batch.last_offset != offset
    ]
    if wrong:
        yield f"Mismatches in :{stem}.index"
        yield from reversed(wrong)
    times, order, missing = [], [], []
    previous = _NO_TIME
    for timestamp, offset in segment.times:
        _, start = max([entry for entry in segment.offsets if entry[0] <= offset], default=(0, 0))
        ends = {batch.last_offset: batch.max_timestamp for batch in segment.batches if batch.position >= start}
        later = [end for end in ends if end >= offset]
        if not later or later[0] > offset:
            missing.append(f"Indexed offset: {offset}, found log offset: {later[0] if later else -1}")
        else:
            if ends[offset] != timestamp:
                times.append(f"  Index timestamp: {timestamp}, log timestamp: {ends[offset]}")
            if previous >= timestamp:
                order.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
        previous = timestamp
    for heading, lines in (
        (f"Found timestamp mismatch in :{stem}.timeindex", times),
        (f"Found out of order timestamp in :{stem}.timeindex", order),
        ("The following indexed offsets are not found in the log.", missing),
    ):
        if lines:
            yield heading
            yield from lines
