"""The walk over the records of a whole batch, compressed or not."""

from __future__ import annotations

from barnabas.common.host import Buffer
from barnabas.records import compression, walk
from barnabas.records.header import HEADER_BYTES, BatchHeader
from barnabas.records.walk import Index, Survey


def _unpacked(header: BatchHeader, batch: Buffer, limit: int) -> tuple[Buffer, int]:
    """Returns bytes with the decompressed records of a magic 2 batch, and the records' start."""
    codec = compression.codec_of(header.attributes)
    if codec is compression.Codec.NONE:
        return memoryview(batch)[: header.size_bytes], HEADER_BYTES
    return compression.unpack(codec, memoryview(batch)[HEADER_BYTES : header.size_bytes], limit), 0


def survey_batch(header: BatchHeader, batch: Buffer, limit: int = compression.DECOMPRESSED_BYTES_MAX) -> Survey:
    """Surveys a magic 2 batch. Raises RecordsRejected if it cannot be decompressed."""
    data, start = _unpacked(header, batch, limit)
    return walk.survey(data, start, header.record_count, header.base_timestamp)


def index_batch(header: BatchHeader, batch: Buffer) -> tuple[Index, Buffer]:
    """Indexes a magic 2 batch; returns the decompressed records too, to which the positions refer."""
    data, start = _unpacked(header, batch, compression.DECOMPRESSED_BYTES_MAX)
    return walk.index(data, start, header.record_count), memoryview(data)[start:]
