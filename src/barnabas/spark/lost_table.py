"""The side table of lost ranges: Parquet files under the path of `lostRangesPath`, one for each discovery.

    topic, topic_id string | partition int | first_offset, end_offset bigint (exclusive; null: unknown)
    cause string (aged, truncated, recreated, deleted) | was_read boolean | found_at timestamp

A file's name derives from its contents, so that planning the same micro-batch again writes the same file again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from barnabas.spark.losses import LostRange

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("cause", pa.string()),
        ("was_read", pa.bool_()),
        ("found_at", pa.timestamp("us", tz="UTC")),
    ]
)


def write(path: str, lost: Sequence[LostRange]) -> None:
    """Writes a file. `path`: a directory, or an address that Arrow's file systems know. Raises OSError."""
    rows = [
        (each.topic, each.topic_id, each.partition, each.first_offset, each.end_offset, each.cause.value, each.was_read)
        for each in lost
    ]
    found_at = time.time_ns() // 1000
    columns = [*zip(*rows, strict=True), [found_at] * len(rows)]
    table = pa.table([pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], SCHEMA)
    name = hashlib.sha256(repr(rows).encode()).hexdigest()[:24]
    if "://" in path:
        system, directory = pafs.FileSystem.from_uri(path)
    else:
        system, directory = pafs.LocalFileSystem(), path
    system.create_dir(directory, recursive=True)
    target = f"{directory}/lost-{name}.parquet"
    if system.get_file_info(target).type == pafs.FileType.NotFound:
        pq.write_table(table, f"{directory}/.lost-{name}.tmp", filesystem=system)
        system.move(f"{directory}/.lost-{name}.tmp", target)
