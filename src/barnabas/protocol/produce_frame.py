"""A hand-written decoder of produce requests to (topic, partition, memoryview): the records are not copied."""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.common.errors import DecodeError
from barnabas.protocol.wire import read_unsigned_varint, skip_tagged_fields

FLEXIBLE_SINCE = 9
BY_TOPIC_ID_SINCE = 13

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_SIZE = struct.Struct(">ii")

#: Topics (a name, or from version 13 a 16-byte id) and their (index, batches).
ProduceData = list[tuple[str | bytes, list[tuple[int, memoryview]]]]


#: Frames with more rows (topics and partitions) are not decoded here.
ROWS_MAX = 500


class ManyRows(Exception):
    """The error for a request with more than `ROWS_MAX` rows."""


class ProduceFrame(NamedTuple):
    """A decoded produce request. `transactional_id` is None if there is none."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: ProduceData


def parse_produce(frame: memoryview, position: int, version: int) -> ProduceFrame:
    """Decodes the body of a produce request that begins at `position`. Raises DecodeError and ManyRows."""
    try:
        if version >= FLEXIBLE_SINCE:
            return _parse_flexible(frame, position, version)
        return _parse_fixed(frame, position)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"ProduceRequest v{version}: malformed or cut off: {error}") from None


def _parse_fixed(frame: memoryview, position: int) -> ProduceFrame:
    """Decodes versions 3-8."""
    length = _INT16.unpack_from(frame, position)[0]
    position += 2
    transactional_id = None
    if length >= 0:
        transactional_id = _text(frame, position, position + length)
        position += length
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topics = _INT32.unpack_from(frame, position + 6)[0]
    position += 10
    rows = topics
    requested: ProduceData = []
    for _ in range(topics):
        name_end = position + 2 + _INT16.unpack_from(frame, position)[0]
        name = _text(frame, position + 2, name_end)
        partitions = _INT32.unpack_from(frame, name_end)[0]
        rows += partitions
        if rows > ROWS_MAX:
            raise ManyRows
        position = name_end + 4
        batches = []
        for _ in range(partitions):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += 8
            batches.append((index, _records(frame, position, size)))
            position += max(size, 0)
        requested.append((name, batches))
    _expect_end(frame, position)
    return ProduceFrame(transactional_id, acks, timeout_ms, requested)


def _parse_flexible(frame: memoryview, position: int, version: int) -> ProduceFrame:
    """Decodes versions 9-13, with compact lengths (plus one, 0 is null) and tagged fields."""
    length, position = read_unsigned_varint(frame, position)
    transactional_id = None
    if length > 0:
        transactional_id = _text(frame, position, position + length - 1)
        position += length - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topics, position = read_unsigned_varint(frame, position + 6)
    rows = topics
    requested: ProduceData = []
    for _ in range(topics - 1):
        topic: str | bytes
        if version >= BY_TOPIC_ID_SINCE:
            topic = bytes(frame[position : position + 16])
            position += 16
        else:
            name_length, position = read_unsigned_varint(frame, position)
            topic = _text(frame, position, position + name_length - 1)
            position += name_length - 1
        partitions, position = read_unsigned_varint(frame, position)
        rows += partitions
        if rows > ROWS_MAX:
            raise ManyRows
        batches = []
        for _ in range(partitions - 1):
            index = _INT32.unpack_from(frame, position)[0]
            size, position = read_unsigned_varint(frame, position + 4)
            batches.append((index, _records(frame, position, size - 1)))
            position = skip_tagged_fields(frame, position + max(size - 1, 0))
        position = skip_tagged_fields(frame, position)
        requested.append((topic, batches))
    _expect_end(frame, skip_tagged_fields(frame, position))
    return ProduceFrame(transactional_id, acks, timeout_ms, requested)


def _text(frame: memoryview, start: int, end: int) -> str:
    if not start <= end <= len(frame):
        raise DecodeError("a name reaches beyond its frame", start)
    try:
        return str(frame[start:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a name is not UTF-8", start) from error


def _records(frame: memoryview, position: int, size: int) -> memoryview:
    if size < 0:
        return frame[:0]
    if position + size > len(frame):
        raise DecodeError(f"{size} bytes of records reach beyond their frame", position)
    return frame[position : position + size]


def _expect_end(frame: memoryview, position: int) -> None:
    if position != len(frame):
        raise DecodeError("a produce request does not end where its frame ends", position)
