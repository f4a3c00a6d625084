"""The `headers` column. It is null for a record without headers, as in Spark's Kafka source.

Headers are read rank by rank: the first header of all records in one step, then the second of those that have one, and
so on. Keys that are not UTF-8 get the replacement character, as in Java's decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.common.host import Buffer
from barnabas.records.header import invalid
from barnabas.records.record import Header
from barnabas.spark import schema
from barnabas.spark.numpy_parser import read_varints
from barnabas.spark.parsed import Longs, Parsed, Parser


def header_column(parser: Parser, data: Buffer, parsed: Parsed) -> Any:
    """Returns the `headers` column of the parsed records. Raises RecordsRejected for malformed headers."""
    counts = parsed.header_counts
    total = int(counts.sum())
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    key_starts, key_sizes, value_starts, value_sizes = _places(data, parsed, offsets, total)
    keys = _text(parser.binary(data, key_starts, key_sizes))
    values = parser.binary(data, value_starts, value_sizes)
    element = schema.ARROW["headers"].value_type
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(element))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=schema.ARROW["headers"], mask=pa.array(counts == 0))


def _places(data: Buffer, parsed: Parsed, offsets: Any, total: int) -> tuple[Longs, Longs, Longs, Longs]:
    """Returns the start and size of every header's key and value, in the order of the records."""
    key_starts, key_sizes, value_starts, value_sizes = (np.empty(total, np.int64) for _ in range(4))
    bytes_of = np.frombuffer(data, np.uint8)
    rows = np.flatnonzero(parsed.header_counts)
    places = parsed.header_starts[rows]
    rank = 0
    while rows.size:
        at = offsets[rows] + rank
        sizes, starts = read_varints(bytes_of, places, 5)
        if (sizes < 0).any():
            raise invalid("a header without a key")
        key_starts[at], key_sizes[at] = starts, sizes
        sizes, starts = read_varints(bytes_of, starts + sizes, 5)
        value_starts[at], value_sizes[at] = starts, sizes
        places = starts + np.maximum(sizes, 0)
        rank += 1
        continues = parsed.header_counts[rows] > rank
        ended = rows[~continues]
        if (places[~continues] != parsed.record_ends[ended]).any():
            raise invalid("a record's headers do not end where its length says")
        rows, places = rows[continues], places[continues]
    return key_starts, key_sizes, value_starts, value_sizes


def _text(keys: Any) -> Any:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([bytes(each.as_py()).decode("utf-8", "replace") for each in keys], pa.string())


def header_lists(headers: Sequence[Sequence[Header]]) -> Any:
    """Returns the `headers` column from lists of (key, value) pairs, one list per record."""
    rows = [
        [
            {"key": key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
            for key, value in each
        ]
        or None
        for each in headers
    ]
    return pa.array(rows, schema.ARROW["headers"])
