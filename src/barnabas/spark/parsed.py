"""What a parser of records hands over: where each record's parts lie in one buffer.

Two parsers fill it, one with numpy and one compiled (`parser` chooses); both refuse the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from barnabas.common.host import Buffer

Longs = NDArray[np.int64]


class Parsed(NamedTuple):
    """One row per record, in the order of the log. Starts count in the buffer; size -1 is null."""

    timestamp_deltas: Longs
    offset_deltas: Longs
    key_starts: Longs
    key_sizes: Longs
    value_starts: Longs
    value_sizes: Longs
    #: Where the first header begins, and how many there are.
    header_starts: Longs
    header_counts: Longs
    #: Where the record ends, as its length says.
    record_ends: Longs

    def slice(self, first: int, end: int) -> Parsed:
        return Parsed(*(each[first:end] for each in self))


class Parser(Protocol):
    """One of the two twins."""

    NAME: str

    def parse(self, data: Buffer, spans: list[tuple[int, int, int]]) -> Parsed:
        """The records in each span (start, end, record count) of `data`. RecordsRejected for bytes that are none."""

    def binary(self, data: Buffer, starts: Longs, sizes: Longs) -> Any:
        """The byte strings as one `pa.BinaryArray`; the starts ascend, and no string reaches into the next one."""


def binary_of_buffers(rows: int, validity: Any, offsets: Any, data: Any) -> Any:
    """A BinaryArray over buffers that somebody else has filled."""
    return pa.Array.from_buffers(pa.binary(), rows, [validity, offsets, data])
