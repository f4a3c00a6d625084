"""The work of a task: it reads one range of offsets and yields Arrow record batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from barnabas.spark import cluster_client as clusters
from barnabas.spark import schema
from barnabas.spark.batch_selection import chunks
from barnabas.spark.decoder import Decoder
from barnabas.spark.errors import DataLost
from barnabas.spark.fetcher import Fetcher
from barnabas.spark.losses import LostRange
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.replays import ReplayFilter
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.typed_values import TypedValues, ValueFormat
from barnabas.spark.worker_memory import freeze_loaded_objects

_log = logging.getLogger(__name__)


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[Any]:
    """Yields `pa.RecordBatch`es with the columns of the options.

    Raises:
        DataLost: records are lost, unless failOnDataLoss=false.
        ValueMalformed: a value does not fit valueSchema, and valueMode is FAILFAST.
    """
    freeze_loaded_objects()
    if options.drop_replays:
        batches = _without_replays(options, wanted)
    else:
        batches = _read(options, wanted, options.columns)
    return batches if options.value_format is None else _typed(batches, options, options.value_format, wanted)


def _typed(
    batches: Iterator[Any], options: SourceOptions, value_format: ValueFormat, wanted: OffsetRange
) -> Iterator[Any]:
    values = TypedValues(value_format, f"{wanted.topic}-{wanted.partition}")
    at = options.columns.index(schema.VALUE)
    for batch in batches:
        typed = values.typed(batch, at)
        if typed.num_rows:
            yield typed


def _read(
    options: SourceOptions, wanted: OffsetRange, columns: Sequence[str], *, is_look_back: bool = False
) -> Iterator[Any]:
    def on_lost(lost: LostRange) -> None:
        if is_look_back:
            return
        if options.fail_on_data_loss:
            raise DataLost([lost])
        _log.warning("records are lost: %s", lost)

    fetcher = Fetcher(clusters.of(options.client), wanted, options.fetch, on_lost)
    decoder = Decoder(wanted.topic, wanted.partition, columns)
    for fetched in fetcher.answers():
        yield from decoder.decode(chunks(fetched.records, fetched.batches), fetched.first_offset, wanted.end_offset)


def _without_replays(options: SourceOptions, wanted: OffsetRange) -> Iterator[Any]:
    """Yields the record batches without replays; it reads the headers even if they are not requested."""
    columns = options.columns if schema.HEADERS in options.columns else (*options.columns, schema.HEADERS)

    def before(first: int, end: int) -> Iterator[Any]:
        earlier = replace(wanted, first_offset=first, end_offset=end)
        return _read(options, earlier, (schema.HEADERS,), is_look_back=True)

    replays = ReplayFilter(wanted.first_offset, before)
    for batch in _read(options, wanted, columns):
        passed = replays.passed(batch)
        if passed.num_rows:
            yield passed.select(list(options.columns))
