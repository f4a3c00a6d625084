"""The produce request that differs from the previous one of its connection only in its records: the common case.

A producer keeps sending to one partition with the same client id, acks, timeout and topic. The other bytes of its last
request are kept for comparison, and its response as a template. Serving a request then costs a comparison, the append,
and three numbers written into the response. Everything else (other bytes, a pending earlier response, an error,
followers to wait for, rules that changed since the authorizer allowed it, a quota of CPU time) takes the general path,
`handlers/produce.py`.
"""

from __future__ import annotations

import struct

from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import InFlight
from barnabas.broker.throttling.client_throttles import Client
from barnabas.broker.throttling.muting import mute
from barnabas.common.errors import RequestFailed
from barnabas.protocol.produce_frame import FLEXIBLE_SINCE
from barnabas.protocol.wire import read_unsigned_varint, unsigned_varint_size
from barnabas.replication.partition import Partition
from barnabas.storage.log import AppendInfo, Origin

_RECORDS_SIZE = struct.Struct(">i")
_THROTTLE_TIME = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")
_OFFSETS_V3 = struct.Struct(">qq")
#: The empty tagged fields of partition, topic and request.
_NO_TAGS = b"\0\0\0"
#: The size of what follows the offsets in a response without errors: record errors, message, tagged fields, throttle
#: time.
_ANSWER_TAIL_BYTES = {**dict.fromkeys(range(3, 8), 4), 8: 10, **dict.fromkeys(range(9, 14), 9)}


class ProduceShortcut:
    """A connection's last produce request, without correlation id and records."""

    __slots__ = (
        "_acks",
        "_answer",
        "_client",
        "_connection",
        "_head",
        "_index",
        "_is_flexible",
        "_offsets",
        "_offsets_at",
        "_rules_version",
        "_services",
        "_size_at",
        "_tail",
        "_times",
        "_topic",
        "_topic_id",
    )

    def __init__(
        self, request: InFlight, services: Services, partition: Partition, *, acks: int, size_at: int, answer: bytes
    ) -> None:
        """`size_at` is the position of the records' size in the frame; `answer` is the response to that request."""
        self._connection = request.connection
        self._services = services
        self._client = Client.of(request.connection.principal, request.client_id)
        self._topic, self._index = partition.topic_partition
        self._topic_id = partition.topic_id
        self._acks = acks
        self._rules_version = -1 if services.authorizer is None else services.authorizer.version
        self._times = request.times.counts
        self._is_flexible = request.api_version >= FLEXIBLE_SINCE
        self._size_at = size_at
        self._head = b""
        self._tail = b""
        self._answer = answer
        self._offsets = _OFFSETS if request.api_version >= 5 else _OFFSETS_V3
        self._offsets_at = len(answer) - _ANSWER_TAIL_BYTES[request.api_version] - self._offsets.size

    @classmethod
    def of(
        cls,
        request: InFlight,
        services: Services,
        partition: Partition,
        frame: memoryview,
        *,
        records_bytes: int,
        acks: int,
        answer: bytes,
    ) -> ProduceShortcut | None:
        """Creates a shortcut from a successful request for one partition; None if it has tagged fields."""
        if request.api_version >= FLEXIBLE_SINCE:
            size_at = len(frame) - len(_NO_TAGS) - records_bytes - unsigned_varint_size(records_bytes + 1)
        else:
            size_at = len(frame) - records_bytes - _RECORDS_SIZE.size
        self = cls(request, services, partition, acks=acks, size_at=size_at, answer=answer)
        if self._records(frame) is None:
            return None
        self._head = bytes(frame[:4])
        self._tail = bytes(frame[8:size_at])
        return self

    def serve(self, frame: memoryview) -> bool:
        """Serves the request if it matches. Returns False, with nothing changed, if it does not."""
        throttles = self._services.throttles
        if throttles is not None and throttles.measures_cpu:
            return False
        if frame[8 : self._size_at] != self._tail or frame[:4] != self._head or self._connection.in_flight:
            return False
        records = self._records(frame)
        if records is None:
            return False
        services = self._services
        authorizer = services.authorizer
        if authorizer is not None and authorizer.version != self._rules_version:
            return False
        try:
            partition = services.replicas.leader(self._topic, self._index)
        except RequestFailed:
            return False
        if partition.topic_id != self._topic_id or (self._acks == -1 and partition.is_replicated):
            return False
        wall_ms = services.host.clock.wall_ms()
        info = services.replicas.append_to(partition, records, self._acks, wall_ms, Origin.CLIENT).info
        if info is None:
            return False  # The append was refused and changed nothing; the general path returns the precise error.
        self._times[0] += 1
        throttle_ms = 0 if throttles is None else throttles.produced(self._client, len(frame))
        if throttle_ms:
            mute(self._connection, throttle_ms, services.host)
        if self._acks != 0:
            self._connection.respond_shortly(self._answered(frame, info, throttle_ms))
        return True

    def _records(self, frame: memoryview) -> memoryview | None:
        """Returns the batches, or None unless exactly the expected end of the request follows them."""
        if self._is_flexible:
            at = self._size_at
            if at + 1 < len(frame) and frame[at] >= 0x80 > frame[at + 1]:
                # A size from 128 to 16,383, as in most requests: decoded here, because two calls cost more.
                size, position = frame[at] & 0x7F | frame[at + 1] << 7, at + 2
            else:
                size, position = read_unsigned_varint(frame, at)
            end = position + size - 1
            if size == 0 or end + len(_NO_TAGS) != len(frame) or frame[end:] != _NO_TAGS:
                return None
            return frame[position:end]
        position = self._size_at + _RECORDS_SIZE.size
        if position > len(frame) or position + _RECORDS_SIZE.unpack_from(frame, self._size_at)[0] != len(frame):
            return None
        return frame[position:]

    def _answered(self, frame: memoryview, info: AppendInfo, throttle_ms: int) -> bytearray:
        answer = bytearray(self._answer)
        answer[4:8] = frame[4:8]
        if self._offsets is _OFFSETS:
            _OFFSETS.pack_into(
                answer, self._offsets_at, info.first_offset, info.log_append_time_ms, info.log_start_offset
            )
        else:
            _OFFSETS_V3.pack_into(answer, self._offsets_at, info.first_offset, info.log_append_time_ms)
        if throttle_ms:
            _THROTTLE_TIME.pack_into(answer, len(answer) - _THROTTLE_TIME.size - self._is_flexible, throttle_ms)
        return answer
