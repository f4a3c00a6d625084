"""Produce (0), versions 3-13: appends record batches to partitions led here.

The request is parsed and the response encoded by hand, because this is the hottest path: no message objects are
created, and the batches stay in the receive buffer until the log writes them. Version 13 names topics by id (KIP-516).
acks=0 gets no response; an error then closes the connection, as in Kafka, so that the client refreshes its metadata.
Versions 10+ return the leader with NOT_LEADER_OR_FOLLOWER (KIP-951). Batches of transactions are verified first, or
added to the transaction from version 12 on (KIP-890, `producing/transactional_produce.py`). Batches that take long to
decompress are validated in the background (`producing/produce_writes.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import partial
from itertools import islice

from barnabas.broker.producing import long_produce
from barnabas.broker.producing.partition_append import PartitionAppend, TopicAppends, name_of, refuse_all
from barnabas.broker.producing.produce_rights import refuse_unauthorized
from barnabas.broker.producing.produce_shortcut import ProduceShortcut
from barnabas.broker.producing.produce_writes import ACKS, ProduceWrites
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight, finish_response, start_response
from barnabas.broker.requests.steps import Work
from barnabas.broker.topics.topic_views import endpoint_of
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.common.portions import whole
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.produce_frame import FLEXIBLE_SINCE, ROWS_MAX, ManyRows, ProduceData, parse_produce
from barnabas.protocol.wire import write_unsigned_varint
from barnabas.replication.commit_waiters import CommitWaiter
from barnabas.replication.purgatory import DelayedOperation

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
#: (index, error code, base offset, log append time, log start offset)
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_V3 = struct.Struct(">ihqq")
_LEADER_SINCE = 10
#: The number of rows built per step.
_ROWS_PER_STEP = 100


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Chunks | Work | None:
    """Appends all batches of the request; returns the response, unless it has to wait, as with acks=all for the HW."""
    version = request.api_version
    try:
        transactional_id, acks, timeout_ms, requested = parse_produce(frame, position, version)
    except ManyRows:
        if request.throttle is not None:
            request.throttle.produced(len(frame))
        return _handle_long(request, bytearray(frame), position, services)
    if request.throttle is not None:
        request.throttle.produced(len(frame))
    topics = _last_of_each(requested)

    def answer() -> Chunks | None:
        return _answer(request, topics, acks, timeout_ms, services)

    if acks not in ACKS:
        refuse_all(topics, ErrorCode.INVALID_REQUIRED_ACKS)
        return answer()
    if services.authorizer is not None:
        whole(refuse_unauthorized(request, services, transactional_id, topics))
    chunks = ProduceWrites(request, services, transactional_id, acks, topics, answer).begin()
    if (
        chunks
        and (request.throttle is None or not request.throttle.time_ms)
        and transactional_id is None
        and len(requested) == 1
        and len(requested[0][1]) == 1
    ):
        request.connection.shortcut = _shortcut(request, frame, acks, requested, topics, chunks, services)
    return chunks


def _handle_long(request: InFlight, frame: bytearray, position: int, services: Services) -> Work:
    def answer(topics: TopicAppends, acks: int, timeout_ms: int) -> Chunks | None:
        return _answer(request, topics, acks, timeout_ms, services)

    return long_produce.serve(request, frame, position, services, answer)


def _answer(request: InFlight, topics: TopicAppends, acks: int, timeout_ms: int, services: Services) -> Chunks | None:
    """Returns the response; None if it has to wait for the HW."""
    if acks == 0:
        return _without_answer(topics)
    if acks == -1:
        waiting = _uncommitted(topics)
        if waiting:
            delayed = DelayedProduce(request, topics, services, waiting)
            services.replicas.purgatory.expire_at(request.now_ms + max(0, timeout_ms), delayed)
            return None
    return _encode(request, topics, services)


def _shortcut(
    request: InFlight,
    frame: memoryview,
    acks: int,
    requested: ProduceData,
    topics: TopicAppends,
    chunks: Chunks,
    services: Services,
) -> ProduceShortcut | None:
    """Returns a shortcut after a successful request for one partition, because the next request is likely to be
    similar."""
    ((_, (append,)),) = topics
    if append.partition is None or append.result.info is None:
        return None
    if services.authorizer is not None and services.authorizer.audit.logs_allowed:
        return None  # The audit log has a line for each request, which the shortcut would not write.
    records_bytes = len(requested[0][1][0][1])
    return ProduceShortcut.of(
        request, services, append.partition, frame, records_bytes=records_bytes, acks=acks, answer=bytes(chunks[0])
    )


# -- appending


def _last_of_each(requested: ProduceData) -> TopicAppends:
    """Returns the last batch of each partition: if a request repeats a partition, Kafka uses the last one."""
    if len(requested) == 1 and len(requested[0][1]) == 1:
        ((topic, ((index, data),)),) = requested
        return [(topic, [PartitionAppend(topic, index, data)])]
    last = {(topic, index): PartitionAppend(topic, index, data) for topic, rows in requested for index, data in rows}
    if len(last) == sum(len(rows) for _, rows in requested):
        appends = iter(last.values())
        return [(topic, list(islice(appends, len(rows)))) for topic, rows in requested]
    merged: dict[str | bytes, list[PartitionAppend]] = {}
    for append in last.values():
        merged.setdefault(append.topic, []).append(append)
    return list(merged.items())


def _without_answer(topics: TopicAppends) -> Chunks:
    for topic, appends in topics:
        for append in appends:
            error = append.result.error
            if error is not ErrorCode.NONE:
                raise DecodeError(
                    f"a produce request with acks=0 failed: {error.name} for partition {append.index} of {topic!r}"
                )
    return []


def _uncommitted(topics: TopicAppends) -> list[PartitionAppend]:
    """Returns the appends that acks=all still waits for."""
    waiting = []
    for _, appends in topics:
        for append in appends:
            partition, info = append.partition, append.result.info
            if partition is not None and info is not None and partition.high_watermark <= info.last_offset:
                waiting.append(append)
    return waiting


class DelayedProduce(DelayedOperation):
    """An acks=all request that waits for the HW; partitions that are not committed at the deadline get
    REQUEST_TIMED_OUT."""

    __slots__ = ("_missing", "_request", "_services", "_topics", "_waiters")

    def __init__(
        self, request: InFlight, topics: TopicAppends, services: Services, waiting: list[PartitionAppend]
    ) -> None:
        super().__init__()
        self._request = request
        self._services = services
        self._topics = topics
        self._missing = set(waiting)
        self._waiters = [self._await(append) for append in waiting]

    def _await(self, append: PartitionAppend) -> CommitWaiter | None:
        partition, info = append.partition, append.result.info
        assert partition is not None, "the partition is led here"
        assert info is not None, "the batch was appended"
        return partition.await_commit(info.last_offset + 1, partial(self._settle, append))

    def _settle(self, append: PartitionAppend, code: ErrorCode) -> None:
        if self.completed or append not in self._missing:
            return
        self._missing.discard(append)
        if code is not ErrorCode.NONE:
            append.fail(code)
        if not self._missing:
            self.complete()

    def on_complete(self, expired: bool) -> None:
        if expired:
            for waiter in self._waiters:
                if waiter is not None:
                    waiter.cancel()
        for append in self._missing:
            append.fail(ErrorCode.REQUEST_TIMED_OUT)
        chunks = _encode(self._request, self._topics, self._services)
        if chunks is not None:
            self._request.reply_encoded(chunks)


# -- answering


def _encode(request: InFlight, topics: TopicAppends, services: Services) -> Chunks | None:
    """Encodes the response; None if that takes more than one turn."""
    version = request.api_version
    is_one = len(topics) == 1 and len(topics[0][1]) == 1
    if not is_one and (len(topics) > ROWS_MAX or sum(len(appends) for _, appends in topics) > ROWS_MAX):
        services.steps.start(_reply(topics, request, services), lambda _: None, request)
        return None
    for _, appends in topics:
        for append in appends:
            if append.result.error is not ErrorCode.NONE:
                return request.encode(whole(_as_message(topics, request, services)))
    head = start_response(request.correlation_id, 1 if version >= FLEXIBLE_SINCE else 0)
    if version >= FLEXIBLE_SINCE:
        _write_flexible(head, topics, version)
    else:
        _write(head, topics, version)
    head += _INT32.pack(0 if request.throttle is None else request.throttle.answered())
    if version >= FLEXIBLE_SINCE:
        head.append(0)  # no tagged fields
    finish_response(head)
    return [head]


def _write(head: bytearray, topics: TopicAppends, version: int) -> None:
    head += _INT32.pack(len(topics))
    for topic, appends in topics:
        assert isinstance(topic, str)
        name = topic.encode()
        head += _INT16.pack(len(name)) + name + _INT32.pack(len(appends))
        for append in appends:
            info = append.result.info
            assert info is not None
            if version >= 5:
                head += _PARTITION.pack(
                    append.index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset
                )
                if version >= 8:
                    head += b"\0\0\0\0\xff\xff"  # no record errors, no message
            else:
                head += _PARTITION_V3.pack(append.index, 0, info.first_offset, info.log_append_time_ms)


def _write_flexible(head: bytearray, topics: TopicAppends, version: int) -> None:
    write_unsigned_varint(head, len(topics) + 1)
    for topic, appends in topics:
        if isinstance(topic, str):
            name = topic.encode()
            write_unsigned_varint(head, len(name) + 1)
            head += name
        else:
            head += topic
        write_unsigned_varint(head, len(appends) + 1)
        for append in appends:
            info = append.result.info
            assert info is not None
            head += _PARTITION.pack(append.index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset)
            head += b"\x01\0\0"  # no record errors, no message, no tagged fields
        head.append(0)


def _reply(topics: TopicAppends, request: InFlight, services: Services) -> Work:
    response = yield from _as_message(topics, request, services)
    yield from request.replied_in_steps(response)


def _as_message(topics: TopicAppends, request: InFlight, services: Services) -> Generator[int, None, ProduceResponse]:
    """Builds the response as a message, for errors and for long responses."""
    response = ProduceResponse()
    has_current_leader = request.api_version >= _LEADER_SINCE
    leaders: set[int] = set()
    count = 0
    for topic, appends in topics:
        rows = []
        for append in appends:
            row = _partition_response(append)
            rows.append(row)
            count += 1
            if count % _ROWS_PER_STEP == 0:
                yield 1
            if has_current_leader and row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                hint = services.replicas.leader_hint(name_of(services.replicas, topic), row.index)
                leader, epoch = hint or (-1, -1)
                row.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
        answer = ProduceResponse.TopicProduceResponse(partition_responses=rows)
        if isinstance(topic, str):
            answer.name = topic
        else:
            answer.topic_id = topic
        response.responses.append(answer)
    image = services.metadata.image
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(
            node_id=leader, host=endpoint.host, port=endpoint.port, rack=image.brokers[leader].rack
        )
        for leader in sorted(leaders)
        if (endpoint := endpoint_of(image, leader, request.listener)) is not None
    ]
    return response


def _partition_response(append: PartitionAppend) -> ProduceResponse.PartitionProduceResponse:
    appended = append.result
    row = ProduceResponse.PartitionProduceResponse(
        index=append.index, error_code=appended.error, base_offset=-1, log_start_offset=appended.log_start_offset
    )
    info = appended.info
    if info is not None:
        row.base_offset = info.first_offset
        row.log_append_time_ms = info.log_append_time_ms
        row.log_start_offset = info.log_start_offset
    if appended.record_errors:  # Kafka returns a message only with record errors
        row.error_message = appended.message
    row.record_errors = [
        ProduceResponse.BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
        for place, text in appended.record_errors
    ]
    return row
