"""What runs in a task: one range of offsets in, Arrow record batches out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from barnabas.spark import cluster as clusters
from barnabas.spark.batches import chunks
from barnabas.spark.decoder import Decoder
from barnabas.spark.faults import DataLost
from barnabas.spark.fetcher import Fetcher
from barnabas.spark.losses import LostRange
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.source_options import SourceOptions

_log = logging.getLogger(__name__)


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[Any]:
    """`pa.RecordBatch`es with the columns of the options. DataLost unless failOnDataLoss=false."""

    def on_lost(lost: LostRange) -> None:
        if options.fail_on_data_loss:
            raise DataLost([lost])
        _log.warning("records are lost: %s", lost)

    fetcher = Fetcher(clusters.of(options.client), wanted, options.fetch, on_lost)
    decoder = Decoder(wanted.topic, wanted.partition, options.columns)
    for fetched in fetcher.answers():
        yield from decoder.decode(chunks(fetched.records, fetched.batches), fetched.first_offset, wanted.end_offset)
