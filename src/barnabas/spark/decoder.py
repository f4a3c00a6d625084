"""Decoding of chunks of batches to Arrow record batches: exactly the requested columns, in their order.

The varying columns come from the positions that the parser found; topic and partition are the same in every row and are
slices of arrays created once. Offsets ascend within a partition, so the reader's range is a slice of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.records.batch import decode_batch
from barnabas.records.header import LOG_APPEND_TIME
from barnabas.spark import schema
from barnabas.spark.batch_selection import Chunk
from barnabas.spark.header_columns import header_column, header_lists
from barnabas.spark.parsed import Longs, Parsed, Parser
from barnabas.spark.parser import PARSER

#: Milliseconds beyond this overflow Spark's microseconds; such timestamps are limited to it.
_MILLIS_MAX = (1 << 63) // 1000 - 1


class Decoder:
    """A decoder for one partition and one choice of columns. Raises RecordsRejected for malformed records."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str], parser: Parser = PARSER) -> None:
        self._topic = topic
        self._partition = partition
        self._columns = tuple(columns)
        self._schema = schema.arrow_schema(columns)
        self._parser = parser
        self._constants: dict[str, Any] = {}

    def decode(self, chunks: Iterator[Chunk], first_offset: int, end_offset: int) -> Iterator[Any]:
        """Yields a `pa.RecordBatch` of each chunk's records in [first_offset, end_offset), omitting empty ones."""
        for chunk in chunks:
            table = self._legacy if chunk.is_legacy else self._table
            batch = table(chunk, first_offset, end_offset)
            if batch is not None:
                yield batch

    def _table(self, chunk: Chunk, first_offset: int, end_offset: int) -> Any | None:
        parsed = self._parser.parse(
            chunk.data, [(span.start, span.end, span.header.record_count) for span in chunk.spans]
        )
        counts = np.array([span.header.record_count for span in chunk.spans], np.int64)
        offsets = parsed.offset_deltas + np.repeat(
            np.array([span.header.base_offset for span in chunk.spans], np.int64), counts
        )
        low, high = np.searchsorted(offsets, [first_offset, end_offset])
        if low >= high:
            return None
        parsed, offsets = parsed.slice(low, high), offsets[low:high]
        headers = [span.header for span in chunk.spans]

        def per_batch(values: list[int]) -> Longs:
            repeated: Longs = np.repeat(np.array(values, np.int64), counts)[low:high]
            return repeated

        makers: dict[str, Callable[[], Any]] = {
            "key": lambda: self._parser.binary(chunk.data, parsed.key_starts, parsed.key_sizes),
            "value": lambda: self._parser.binary(chunk.data, parsed.value_starts, parsed.value_sizes),
            "offset": lambda: pa.array(offsets),
            "timestamp": lambda: self._timestamps(parsed, headers, per_batch),
            "timestampType": lambda: pa.array(per_batch([each.timestamp_type for each in headers]).astype(np.int32)),
            "headers": lambda: header_column(self._parser, chunk.data, parsed),
        }
        return self._batch(makers, len(offsets))

    def _timestamps(self, parsed: Parsed, headers: list[Any], per_batch: Callable[[list[int]], Longs]) -> Any:
        with np.errstate(over="ignore"):
            millis = parsed.timestamp_deltas + per_batch([each.base_timestamp for each in headers])
        if any(each.timestamp_type == LOG_APPEND_TIME for each in headers):
            by_log = per_batch([each.timestamp_type for each in headers]) == LOG_APPEND_TIME
            millis = np.where(by_log, per_batch([each.max_timestamp for each in headers]), millis)
        return _microseconds(millis)

    def _legacy(self, chunk: Chunk, first_offset: int, end_offset: int) -> Any | None:
        """Decodes message formats 0 and 1 record by record: they are rare and old."""
        [span] = chunk.spans
        records = [each for each in decode_batch(chunk.data, span.start) if first_offset <= each.offset < end_offset]
        if not records:
            return None
        makers: dict[str, Callable[[], Any]] = {
            "key": lambda: pa.array([each.key for each in records], pa.binary()),
            "value": lambda: pa.array([each.value for each in records], pa.binary()),
            "offset": lambda: pa.array([each.offset for each in records], pa.int64()),
            "timestamp": lambda: _microseconds(np.array([each.timestamp for each in records], np.int64)),
            "timestampType": lambda: pa.array([span.header.timestamp_type] * len(records), pa.int32()),
            "headers": lambda: header_lists([each.headers for each in records]),
        }
        return self._batch(makers, len(records))

    def _batch(self, makers: dict[str, Callable[[], Any]], rows: int) -> Any:
        columns = [makers[name]() if name in makers else self._constant(name, rows) for name in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _constant(self, name: str, rows: int) -> Any:
        kept = self._constants.get(name)
        if kept is None or len(kept) < rows:
            value = self._topic if name == "topic" else self._partition
            kept = self._constants[name] = pa.repeat(pa.scalar(value, schema.ARROW[name]), max(rows, 4096))
        return kept[:rows]


def _microseconds(millis: Longs) -> Any:
    micros = np.clip(millis, -_MILLIS_MAX, _MILLIS_MAX) * 1000
    return pa.array(micros).view(schema.ARROW["timestamp"])
