"""The encoding of Fetch responses, versions 4-18, as chunks: records go from the log to the socket without a copy,
except small ones.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence

from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight, finish_response, start_response
from barnabas.broker.topics.topic_views import endpoint_of
from barnabas.common.errors import ErrorCode
from barnabas.protocol.wire import write_compact_string, write_unsigned_varint
from barnabas.replication.fetch_items import FetchItem, FetchResult

_SESSIONS_SINCE = 7
_FLEXIBLE = 12
_BY_TOPIC_ID = 13
_LEADER_SINCE = 16
#: Records up to this size are copied into the buffer of the preceding fields, which saves a chunk.
_COPIED_BYTES_MAX = 16 * 1024
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_THROTTLE = struct.Struct(">i")
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
#: (index, error code, HW, LSO, log start offset)
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_V4 = struct.Struct(">ihqq")
#: The fields of `_PARTITION`, the number of aborted transactions (null or zero), and the preferred read replica.
_PARTITION_V12 = struct.Struct(">ihqqqBi")
_TRANSACTION = struct.Struct(">qq")
_EPOCH_OFFSET = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")

Reported = Sequence[tuple[FetchItem, FetchResult]]


#: The number of topics, and of a topic's rows, encoded per step; and the number of rows grouped by topic per step.
_ROWS_PER_STEP = 100
_GROUPED_PER_STEP = 500


def encode_fetch_response(
    request: InFlight, services: Services, error: ErrorCode, session_id: int, reported: Reported
) -> Generator[int, None, Chunks]:
    """Encodes a Fetch response with these results, some topics and rows per step."""
    version = request.api_version
    flexible = version >= _FLEXIBLE
    writer = _Writer(start_response(request.correlation_id, 1 if flexible else 0))
    head = writer.head
    throttle_ms = 0 if request.throttle is None else request.throttle.answered()
    if version >= _SESSIONS_SINCE:
        head += _THROTTLE_ERROR_SESSION.pack(throttle_ms, error, session_id)
    else:
        head += _THROTTLE.pack(throttle_ms)
    topics: dict[str | bytes, list[tuple[FetchItem, FetchResult]]] = {}
    for place, (item, result) in enumerate(reported, 1):
        if place % _GROUPED_PER_STEP == 0:
            yield 1
        topics.setdefault(item.topic_id if version >= _BY_TOPIC_ID else item.topic or "", []).append((item, result))
    yield from _write_topics(writer, topics, version)
    if flexible:
        writer.head += _response_tags(request, services, reported) if version >= _LEADER_SINCE else b"\0"
    return writer.finish()


class _Writer:
    """The chunks of a response: fields collect in `head`, large records stay as they are."""

    __slots__ = ("_chunks", "_first", "_size_bytes", "head")

    def __init__(self, head: bytearray) -> None:
        self.head = self._first = head
        self._chunks: Chunks = []
        self._size_bytes = 0

    def records(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) <= _COPIED_BYTES_MAX:
            self.head += data
            return
        self._size_bytes += len(data) + (0 if self.head is self._first else len(self.head))
        self._chunks += (self.head, data)
        self.head = bytearray()

    def finish(self) -> Chunks:
        if self.head is not self._first:
            self._size_bytes += len(self.head)
        finish_response(self._first, self._size_bytes)
        return [*self._chunks, self.head]


def _write_topics(
    writer: _Writer, topics: dict[str | bytes, list[tuple[FetchItem, FetchResult]]], version: int
) -> Generator[int, None, None]:
    is_flexible = version >= _FLEXIBLE
    _write_count(writer.head, len(topics), is_flexible)
    for place, (topic, rows) in enumerate(topics.items(), 1):
        if place % _ROWS_PER_STEP == 0:
            yield 1
        if isinstance(topic, bytes):
            writer.head += topic
        elif is_flexible:
            write_compact_string(writer.head, topic)
        else:
            name = topic.encode()
            writer.head += _INT16.pack(len(name)) + name
        _write_count(writer.head, len(rows), is_flexible)
        for row, (item, result) in enumerate(rows, 1):
            if row % _ROWS_PER_STEP == 0:
                yield 1
            if not is_flexible:
                _write_fields(writer.head, item, result, version)
                writer.records(result.data)
                continue
            head = writer.head
            aborted, data = result.aborted, result.data
            fields = (
                item.index,
                result.error,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
            )
            if not aborted:
                head += _PARTITION_V12.pack(*fields, 0 if aborted is None else 1, result.preferred)
            else:
                head += _PARTITION.pack(*fields)
                write_unsigned_varint(head, len(aborted) + 1)
                for transaction in aborted:
                    head += _TRANSACTION.pack(*transaction)
                    head.append(0)
                head += _INT32.pack(result.preferred)
            if data:
                write_unsigned_varint(head, len(data) + 1)
                writer.records(data)
            else:
                head.append(1)
            if result.diverging is None and result.leader is None:
                writer.head.append(0)
            else:
                writer.head += _partition_tags(result, version)
        if is_flexible:
            writer.head.append(0)


def _write_count(head: bytearray, count: int, is_flexible: bool) -> None:
    if is_flexible:
        write_unsigned_varint(head, count + 1)
    else:
        head += _INT32.pack(count)


def _write_fields(head: bytearray, item: FetchItem, result: FetchResult, version: int) -> None:
    """Writes the fields of a partition, up to the size of its records, for versions 4-11."""
    fields = (item.index, result.error, result.high_watermark, result.last_stable_offset)
    if version >= 5:
        head += _PARTITION.pack(*fields, result.log_start_offset)
    else:
        head += _PARTITION_V4.pack(*fields)
    head += _INT32.pack(-1 if result.aborted is None else len(result.aborted))
    for transaction in result.aborted or ():
        head += _TRANSACTION.pack(*transaction)
    if version >= 11:
        head += _INT32.pack(result.preferred)
    head += _INT32.pack(len(result.data))


def _partition_tags(result: FetchResult, version: int) -> bytes:
    """Returns tagged fields 0 (diverging epoch) and 1 (current leader, KIP-951)."""
    leader = result.leader if version >= _LEADER_SINCE else None
    if result.diverging is None and leader is None:
        return b"\0"
    tags = [
        bytes((tag, len(body))) + body
        for tag, body in (
            (0, _EPOCH_OFFSET.pack(*result.diverging) + b"\0" if result.diverging else b""),
            (1, _LEADER.pack(*leader) + b"\0" if leader else b""),
        )
        if body
    ]
    return bytes((len(tags),)) + b"".join(tags)


def _response_tags(request: InFlight, services: Services, reported: Reported) -> bytes:
    """Returns tagged field 0: the endpoints of the leaders that partitions of this response name."""
    leaders = sorted({result.leader[0] for _, result in reported if result.leader is not None})
    if not leaders:
        return b"\0"
    image = services.metadata.image
    body = bytearray()
    count = 0
    for leader in leaders:
        endpoint = endpoint_of(image, leader, request.listener)
        if endpoint is not None:
            count += 1
            body += _INT32.pack(leader)
            write_compact_string(body, endpoint.host)
            body += _INT32.pack(endpoint.port)
            write_compact_string(body, image.brokers[leader].rack)
            body.append(0)
    if not count:
        return b"\0"
    tag = bytearray(b"\x01\0")
    size = bytearray()
    write_unsigned_varint(size, count + 1)
    write_unsigned_varint(tag, len(size) + len(body))
    return bytes(tag + size + body)
