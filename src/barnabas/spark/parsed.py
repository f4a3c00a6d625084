"""The result of a parser of records: the positions of each record's parts in one buffer.

There are two parsers, one with numpy and one compiled (`parser` chooses); both refuse the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from barnabas.common.host import Buffer

Longs = NDArray[np.int64]


class Parsed(NamedTuple):
    """A row per record, in the order of the log. Starts are positions in the buffer; size -1 is null."""

    timestamp_deltas: Longs
    offset_deltas: Longs
    key_starts: Longs
    key_sizes: Longs
    value_starts: Longs
    value_sizes: Longs
    #: The position of the first header, and the number of headers.
    header_starts: Longs
    header_counts: Longs
    #: The end of the record, according to its length.
    record_ends: Longs

    def slice(self, first: int, end: int) -> Parsed:
        return Parsed(*(each[first:end] for each in self))


class Parser(Protocol):
    """The interface of the compiled parser and the one with numpy."""

    NAME: str

    def parse(self, data: Buffer, spans: list[tuple[int, int, int]]) -> Parsed:
        """Parses the records in each span (start, end, record count) of `data`. Raises RecordsRejected if malformed."""

    def binary(self, data: Buffer, starts: Longs, sizes: Longs) -> Any:
        """Returns the byte strings as one `pa.BinaryArray`; the starts ascend, and no two strings overlap."""
