"""`dropReplays`: omits records that our own sink wrote a second time (see `origin`).

A query writes its micro-batches one after the other: the next begins when all records of the last are acknowledged. So
in one partition, for each query:

    a record of a later batch than the last seen     the last one is complete; forget its origins
    a record of the same batch                       a replay if its origin was seen, else new
    a record of an earlier batch                     a late record of an abandoned try: a replay

A range can begin inside a batch. When a query first appears, the records before the range are searched for origins of
that batch, back to a smaller batch of the query, to the beginning of the log, or for `LOOK_BACK_RECORDS`; a copy whose
first record is still further back is not detected. Records without an origin pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark import schema
from barnabas.spark.origin import HEADER

LOOK_BACK_RECORDS = 100_000
_FIRST_STEP = 1_000

#: Returns the record batches, with headers, of a range [first, end) of the same partition.
Reader = Callable[[int, int], Iterator[Any]]


class Batch:
    """The seen part of one query's micro-batch: the origins of its records, without query and batch."""

    __slots__ = ("number", "seen")

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: set[bytes] = set()


class ReplayFilter:
    """The filter of one range that begins at `first_offset`. `read_before` reads records before it."""

    def __init__(self, first_offset: int, read_before: Reader) -> None:
        self._first_offset = first_offset
        self._read_before = read_before
        self._batches: dict[bytes, Batch] = {}

    def passed(self, table: Any) -> Any:
        """Returns the rows of a record batch that are not replays. The record batch must have the column `headers`."""
        found = origins(table)
        keep = np.ones(table.num_rows, bool)
        for row, origin in found:
            parts = _split(origin)
            if parts is not None and not self._is_new(*parts):
                keep[row] = False
        return table if keep.all() else table.filter(pa.array(keep))

    def _is_new(self, query: bytes, number: int, rest: bytes) -> bool:
        batch = self._batches.get(query)
        if batch is None:
            batch = self._batches[query] = self._look_back(query, number)
        if number < batch.number:
            return False
        if number > batch.number:
            batch = self._batches[query] = Batch(number)
        if rest in batch.seen:
            return False
        batch.seen.add(rest)
        return True

    def _look_back(self, query: bytes, number: int) -> Batch:
        """Returns the part of the query's batch that precedes the range, found by reading records before it."""
        batch = Batch(number)
        end, step = self._first_offset, _FIRST_STEP
        lowest = max(0, self._first_offset - LOOK_BACK_RECORDS)
        while end > lowest:
            first = max(lowest, end - step)
            for table in self._read_before(first, end):
                for _, origin in origins(table):
                    parts = _split(origin)
                    if parts is None or parts[0] != query:
                        continue
                    if parts[1] < number:
                        lowest = end
                    elif parts[1] > batch.number:
                        batch = Batch(parts[1])
                    if parts[1] == batch.number:
                        batch.seen.add(parts[2])
            end, step = first, 4 * step
        return batch


def origins(table: Any) -> list[tuple[int, bytes]]:
    """Returns (row, origin) of the rows of a record batch that have an origin header."""
    headers = table.column(table.schema.get_field_index(schema.HEADERS))
    rows = pc.list_parent_indices(headers)
    pairs = headers.flatten()
    marked = pc.equal(pairs.field("key"), HEADER)
    chosen, values = rows.filter(marked).to_pylist(), pairs.field("value").filter(marked).to_pylist()
    return [(row, value) for row, value in zip(chosen, values, strict=True) if value is not None]


def _split(origin: bytes) -> tuple[bytes, int, bytes] | None:
    """Parses an origin header into query, batch and the rest; None for a header that the sink did not write."""
    parts = origin.split(b"/", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    return parts[0], int(parts[1]), parts[2]
