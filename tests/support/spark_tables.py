"""The Spark source's decoder with each of its parsers, and the tables that the slow reader of records would return."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from tests.support import twins

from barnabas.records.batch import decode_batch, iter_headers
from barnabas.spark import numpy_parser, parser, schema
from barnabas.spark.batch_selection import Aborted, chunks, select
from barnabas.spark.decoder import Decoder
from barnabas.spark.parsed import Parser

END = (1 << 63) - 1


@cache
def parsers() -> dict[str, Parser]:
    """Returns all parsers that can run here, the compiled one from its current source."""
    found = {"numpy": cast("Parser", numpy_parser)}
    twin = twins.compiled("src/barnabas/spark/_compiled_parser.pyx", parser.compiled_parser())
    if twin is not None:
        found["compiled"] = twin
    return found


def decoded(
    data: bytes,
    parser: Parser,
    *,
    first: int = 0,
    end: int = END,
    aborted: Sequence[Aborted] | None = None,
    columns: Sequence[str] = schema.ALL_COLUMNS,
) -> pa.Table:
    """Returns the table that a task would pass to Spark for these bytes."""
    selected = select(data, first, end, aborted)
    decoder = Decoder("orders", 3, columns, parser)
    batches = list(decoder.decode(chunks(data, selected.batches), first, end))
    return pa.Table.from_batches(batches, schema.arrow_schema(columns))


def expected(data: bytes, *, first: int = 0, end: int = END) -> list[dict[str, Any]]:
    """Returns the same from the reader that decodes records one by one, of every batch that is not a control batch."""
    rows = []
    for position, header in iter_headers(data):
        if header.is_control:
            continue
        rows += [
            {
                "key": record.key,
                "value": record.value,
                "topic": "orders",
                "partition": 3,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestampType": header.timestamp_type,
                "headers": [{"key": _shown(key), "value": value} for key, value in record.headers] or None,
            }
            for record in decode_batch(data, position)
            if first <= record.offset < end
        ]
    return rows


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows of a table in the form of `expected`: timestamps in ms."""
    millis = pc.divide(table["timestamp"].cast(pa.int64()), 1000).to_pylist()
    rows = table.drop_columns(["timestamp"]).to_pylist()
    return [{**row, "timestamp": at} for row, at in zip(rows, millis, strict=True)]


def _shown(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
