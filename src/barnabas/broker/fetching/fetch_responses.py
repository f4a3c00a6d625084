"""The encoding of Fetch responses, versions 4-18, as chunks: records go from the log to the socket without a copy,
except small ones.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence

from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import COPIED_BYTES_MAX, Chunks, InFlight, finish_response, start_response
from barnabas.broker.topics.topic_views import endpoint_of
from barnabas.common.errors import ErrorCode
from barnabas.common.waiting_events import WAITING_TAG
from barnabas.protocol.wire import write_compact_string, write_unsigned_varint
from barnabas.replication.fetch_items import FetchItem, FetchResult

_SESSIONS_SINCE = 7
_FLEXIBLE = 12
_BY_TOPIC_ID = 13
_LEADER_SINCE = 16
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_THROTTLE = struct.Struct(">i")
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
#: (index, error code, HW, LSO, log start offset)
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_V4 = struct.Struct(">ihqq")
#: (number of aborted transactions: null or zero, preferred read replica)
_NO_TRANSACTIONS = struct.Struct(">Bi")
_TRANSACTION = struct.Struct(">qq")
_EPOCH_OFFSET = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")

Reported = Sequence[tuple[FetchItem, FetchResult]]


#: The number of topics, and of a topic's rows, encoded per step; and the number of rows grouped by topic per step.
_ROWS_PER_STEP = 100
_GROUPED_PER_STEP = 500


def encode_fetch_response(
    request: InFlight, services: Services, error: ErrorCode, session_id: int, reported: Reported, waiting: bytes = b""
) -> Generator[int, None, Chunks]:
    """Encodes a Fetch response with these results, some topics and rows per step. `waiting`: the events that wait, for
    a reader of the journal that asked for them.
    """
    version = request.api_version
    flexible = version >= _FLEXIBLE
    writer = _Writer(start_response(request.correlation_id, 1 if flexible else 0))
    head = writer.head
    throttle_ms = 0 if request.throttle is None else request.throttle.answered()
    if version >= _SESSIONS_SINCE:
        head += _THROTTLE_ERROR_SESSION.pack(throttle_ms, error, session_id)
    else:
        head += _THROTTLE.pack(throttle_ms)
    if len(reported) == 1:
        _write_topic(writer, _topic_of(reported[0][0], version), reported, version)
    else:
        yield from _write_topics(writer, reported, version)
    if flexible:
        tags = _response_tags(request, services, reported) if version >= _LEADER_SINCE else b"\0"
        writer.head += _with_waiting(tags, waiting) if waiting else tags
    return writer.finish()


class _Writer:
    """The chunks of a response: fields collect in `head`, large records stay as they are."""

    __slots__ = ("_chunks", "_first", "_size_bytes", "head")

    def __init__(self, head: bytearray) -> None:
        self.head = self._first = head
        self._chunks: Chunks = []
        self._size_bytes = 0

    def records(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) <= COPIED_BYTES_MAX:
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


def _topic_of(item: FetchItem, version: int) -> str | bytes:
    return item.topic_id if version >= _BY_TOPIC_ID else item.topic or ""


def _write_topics(writer: _Writer, reported: Reported, version: int) -> Generator[int, None, None]:
    """Writes all topics; each one's rows stand together."""
    topics: dict[str | bytes, list[tuple[FetchItem, FetchResult]]] = {}
    for place, (item, result) in enumerate(reported, 1):
        if place % _GROUPED_PER_STEP == 0:
            yield 1
        topics.setdefault(_topic_of(item, version), []).append((item, result))
    _write_count(writer.head, len(topics), version)
    for place, (topic, rows) in enumerate(topics.items(), 1):
        if place % _ROWS_PER_STEP == 0:
            yield 1
        _begin_topic(writer.head, topic, len(rows), version)
        for begin in range(0, len(rows), _ROWS_PER_STEP):
            if begin:
                yield 1
            _write_rows(writer, rows[begin : begin + _ROWS_PER_STEP], version)
        if version >= _FLEXIBLE:
            writer.head.append(0)


def _write_topic(writer: _Writer, topic: str | bytes, rows: Reported, version: int) -> None:
    """Writes an only topic with few rows."""
    _write_count(writer.head, 1, version)
    _begin_topic(writer.head, topic, len(rows), version)
    _write_rows(writer, rows, version)
    if version >= _FLEXIBLE:
        writer.head.append(0)


def _begin_topic(head: bytearray, topic: str | bytes, rows: int, version: int) -> None:
    if isinstance(topic, bytes):
        head += topic
    elif version >= _FLEXIBLE:
        write_compact_string(head, topic)
    else:
        name = topic.encode()
        head += _INT16.pack(len(name)) + name
    _write_count(head, rows, version)


def _write_rows(writer: _Writer, rows: Reported, version: int) -> None:
    for item, result in rows:
        aborted, data = result.aborted, result.data
        if version < _FLEXIBLE:
            _write_fields(writer.head, item, result, version)
            writer.records(data)
            continue
        head = writer.head
        head += _PARTITION.pack(
            item.index, result.error, result.high_watermark, result.last_stable_offset, result.log_start_offset
        )
        if not aborted:
            head += _NO_TRANSACTIONS.pack(0 if aborted is None else 1, result.preferred)
        else:
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


def _write_count(head: bytearray, count: int, version: int) -> None:
    if version < _FLEXIBLE:
        head += _INT32.pack(count)
    elif count < 0x7F:
        head.append(count + 1)
    else:
        write_unsigned_varint(head, count + 1)


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


def _with_waiting(tags: bytes, waiting: bytes) -> bytes:
    """Returns the tagged fields of a response with one more, whose number is greater than the others'."""
    more = bytearray((tags[0] + 1,)) + tags[1:]
    write_unsigned_varint(more, WAITING_TAG)
    write_unsigned_varint(more, len(waiting))
    return bytes(more + waiting)


def _response_tags(request: InFlight, services: Services, reported: Reported) -> bytes:
    """Returns tagged field 0: the endpoints of the leaders that partitions of this response name."""
    leaders = {result.leader[0] for _, result in reported if result.leader is not None}
    if not leaders:
        return b"\0"
    image = services.metadata.image
    body = bytearray()
    count = 0
    for leader in sorted(leaders):
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
