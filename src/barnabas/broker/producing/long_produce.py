"""Produce requests of thousands of partitions: decoded and appended a few at a time, with one response.

A request has one batch for each partition that the producer writes to on this broker, usually hundreds at most; a
hundred thousand are possible, and most of them can be errors. The connection's other requests wait meanwhile, so that a
producer's batches keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from barnabas.broker.producing.partition_append import PartitionAppend, TopicAppends, refuse_all
from barnabas.broker.producing.produce_rights import refuse_unauthorized
from barnabas.broker.producing.produce_writes import ACKS, ProduceWrites
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.produce_frame import BY_TOPIC_ID_SINCE

#: The number of rows appended in one part.
_ROWS_PER_PART: Final = 100
#: The number of rows read per step.
_ROWS_PER_STEP: Final = 200

#: Builds the response from the results of all rows, `acks` and the timeout in ms; returns None if it is sent later.
Answer = Callable[[TopicAppends, int, int], Chunks | None]


def serve(request: InFlight, frame: bytearray, position: int, services: Services, answer: Answer) -> Work:
    """Decodes the request in steps, then appends its parts one after the other; the response is sent after the last."""
    version = request.api_version
    message, end = yield from codec.decode_in_steps(ProduceRequest, version, frame, position)
    if end != len(frame):
        raise DecodeError(f"ProduceRequest v{version}: {len(frame) - end} bytes after its end")
    topics = yield from _last_of_each(message, by_id=version >= BY_TOPIC_ID_SINCE)
    acks, timeout_ms, transactional_id = message.acks, message.timeout_ms, message.transactional_id
    services.steps.free(message)
    del message

    def answered() -> Chunks | None:
        return answer(topics, acks, timeout_ms)

    if acks in ACKS:
        yield from refuse_unauthorized(request, services, transactional_id, topics)
        _Appends(request, services, transactional_id, acks, topics, answered).begin()
    else:
        refuse_all(topics, ErrorCode.INVALID_REQUIRED_ACKS)
        request.reply_with(answered)


def _last_of_each(message: ProduceRequest, *, by_id: bool) -> Generator[int, None, TopicAppends]:
    """Returns the last batch of each partition: if a request repeats a partition, Kafka uses the last one."""
    found: dict[str | bytes, dict[int, PartitionAppend]] = {}
    seen = 0
    for topic in message.topic_data:
        key = topic.topic_id if by_id else topic.name
        appends = found.setdefault(key, {})
        for row in topic.partition_data:
            data = memoryview(b"" if row.records is None else row.records)
            appends[row.index] = PartitionAppend(key, row.index, data)
            seen += 1
            if seen % _ROWS_PER_STEP == 0:
                yield 1
    return [(topic_key, list(appends.values())) for topic_key, appends in found.items()]


class _Appends:
    """The appends of one request, one part after the other. The next part begins when the previous one is done, which
    can wait for its coordinator or for a thread that decompresses its batches."""

    def __init__(
        self,
        request: InFlight,
        services: Services,
        transactional_id: str | None,
        acks: int,
        topics: TopicAppends,
        answer: Callable[[], Chunks | None],
    ) -> None:
        self._request = request
        self._services = services
        self._transactional_id = transactional_id
        self._acks = acks
        self._answer = answer
        self._parts = _parts(topics)

    def begin(self) -> None:
        self._request.connection.begin_exclusive()
        self._append_next()

    def _append_next(self) -> None:
        request = self._request
        self._services.steps.start(self._append(), lambda _: None, request, lambda: not request.connection.is_closed)

    def _append(self) -> Work:
        """Appends the next part of the request, or sends the response after the last one."""
        yield 1
        request = self._request
        part = next(self._parts, None)
        if part is not None:
            ProduceWrites(
                request, self._services, self._transactional_id, self._acks, part, self._append_next, has_waited=True
            ).begin()
            return
        request.connection.end_exclusive()
        request.reply_with(self._answer)


def _parts(topics: TopicAppends) -> Generator[TopicAppends, None, None]:
    part: TopicAppends = []
    room = _ROWS_PER_PART
    for topic, appends in topics:
        begin = 0
        while begin < len(appends):
            taken = appends[begin : begin + room]
            part.append((topic, taken))
            begin += len(taken)
            room -= len(taken)
            if not room:
                yield part
                part, room = [], _ROWS_PER_PART
    if part:
        yield part
