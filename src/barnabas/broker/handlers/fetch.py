"""Fetch (1), versions 4-18: read record batches of partitions led here.

Records go from the log to the socket without being looked at. A reader waits up to `max_wait_ms` for `min_bytes`;
sessions (7+, KIP-227), leader epochs (9+, KIP-320), topic ids (13+, KIP-516), divergence (12+, KIP-595), the leader
for who asked the wrong broker or epoch (16+, KIP-951).
What memory has not got is loaded beside the loop (`replication.fetching`).
Not yet: reading from the closest replica.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from barnabas.broker.context import Services
from barnabas.broker.dispatch import Chunks, InFlight, finish_response, start_response
from barnabas.broker.fetch_sessions import EPOCH_INITIAL, Key, Session, is_full, next_epoch, update_item
from barnabas.broker.topic_views import endpoint_of
from barnabas.common.errors import ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.wire import write_compact_string, write_unsigned_varint
from barnabas.replication.fetching import (
    UNCHANGED,
    ColdFetch,
    DelayedFetch,
    DelayedFollowerFetch,
    FetchItem,
    FetchPlan,
    FetchResult,
    FetchRound,
    read_all,
)
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.partition import Isolation, Partition

_SESSIONS_SINCE = 7
_FLEXIBLE = 12
_BY_TOPIC_ID = 13
_REPLICA_STATE_SINCE = 15
_LEADER_SINCE = 16
#: Records up to this size are copied behind the fields before them: one chunk less to send.
_COPIED_BYTES_MAX = 16 * 1024
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
#: index, error code, HW, LSO, log start offset
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_V4 = struct.Struct(">ihqq")
#: As `_PARTITION`, the number of aborted transactions (null, or none), and the preferred replica.
_PARTITION_V12 = struct.Struct(">ihqqqBi")
_TRANSACTION = struct.Struct(">qq")
_EPOCH_OFFSET = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")

Told = Sequence[tuple[FetchItem, FetchResult]]


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Chunks | None:
    """Read now and answer, or wait for the disk or for more to come."""
    message, _ = codec.decode(FetchRequest, request.api_version, frame, position)
    opened = _open_session(request, message, services)
    if isinstance(opened, ErrorCode):
        return _encode(request, services, opened, 0, ())
    session, items = opened
    max_bytes = min(message.max_bytes, services.config.int_of("fetch.max.bytes"))
    replica_id, replica_epoch = _replica(message, request.api_version)
    isolation = _isolation(message, replica_id)
    plan = FetchPlan(isolation, min(message.min_bytes, max_bytes), max_bytes, replica_id, replica_epoch)
    outcome = read_all(services.replicas, items, plan)
    if not outcome.cold and not _waits(outcome, plan, message):
        return _answer(request, message, services, session, items, outcome)
    return _PendingFetch(request, message, services, session, items, plan).go_on(outcome)


def _waits(outcome: FetchRound, plan: FetchPlan, message: FetchRequest) -> bool:
    """Whether there is to be more before it is answered."""
    return (
        outcome.some_may_come
        and not outcome.answer_now
        and outcome.size_bytes < plan.min_bytes
        and message.max_wait_ms > 0
    )


class _PendingFetch:
    """A fetch that is not answered at once: it waits for the disk, for more records or for both, in turns.

    Its deadline ends the wait for records; what is being loaded then is still waited for, as for any disk.
    """

    __slots__ = ("_items", "_message", "_plan", "_request", "_services", "_session")

    def __init__(
        self,
        request: InFlight,
        message: FetchRequest,
        services: Services,
        session: Session | None,
        items: Sequence[FetchItem],
        plan: FetchPlan,
    ) -> None:
        self._request = request
        self._message = message
        self._services = services
        self._session = session
        self._items = items
        self._plan = plan

    def go_on(self, outcome: FetchRound, *, may_wait: bool = True) -> Chunks | None:
        """The answer, if this is one."""
        if outcome.cold:
            self._load(outcome, may_wait)
            return None
        wait_ms, follower = self._message.max_wait_ms, self._plan.replica_id
        if follower >= 0:
            wait_ms = self._services.replicas.surroundings.follower_waits.wait_ms(follower, wait_ms)
        deadline_ms = self._request.now_ms + wait_ms
        waits = may_wait and _waits(outcome, self._plan, self._message)
        if waits and self._services.host.clock.now_ms() < deadline_ms:
            self._wait(outcome, deadline_ms)
            return None
        return _answer(self._request, self._message, self._services, self._session, self._items, outcome)

    def _load(self, outcome: FetchRound, may_wait: bool) -> None:
        request = self._request
        connection = request.connection

        def take(error: BaseException | None) -> Chunks | None:
            if error is not None:
                raise error
            if not fetch.take():
                return None
            connection.end_slow()
            request.on_abandoned = None
            return self.go_on(outcome, may_wait=may_wait and not self._has_moved(outcome))

        fetch = ColdFetch(
            self._services.replicas, self._plan, outcome, lambda error: request.reply_with(lambda: take(error))
        )
        connection.begin_slow()
        request.on_abandoned = fetch.cancel
        fetch.load()

    def _has_moved(self, outcome: FetchRound) -> bool:
        """Whether more became readable since the round was read: nobody would tell the fetch of it any more."""
        if self._plan.isolation is Isolation.LOG_END:
            return True  # a follower's round does not say up to where it was read
        for item, result in zip(self._items, outcome.results, strict=True):
            partition = item.partition
            if result is UNCHANGED:
                if not item.is_unchanged():
                    return True
            elif partition is not None and (
                result.high_watermark != partition.high_watermark
                or result.last_stable_offset != partition.last_stable_offset
            ):
                return True
        return False

    def _wait(self, outcome: FetchRound, deadline_ms: int) -> None:
        request, replicas = self._request, self._services.replicas
        missing_bytes = self._plan.min_bytes - outcome.size_bytes
        watched, follower = _watched(replicas, self._items), self._plan.replica_id
        delayed: DelayedFetch
        if follower >= 0:
            waits = replicas.surroundings.follower_waits
            delayed = DelayedFollowerFetch(watched, missing_bytes, self._answer_later, follower, waits)
        else:
            delayed = DelayedFetch(watched, self._plan.isolation, missing_bytes, self._answer_later)
        request.on_abandoned = delayed.cancel
        replicas.purgatory.expire_at(deadline_ms, delayed)

    def _answer_later(self) -> None:
        self._request.reply_with(self._read_again)

    def _read_again(self) -> Chunks | None:
        self._plan.is_first_look = False
        return self.go_on(read_all(self._services.replicas, self._items, self._plan), may_wait=False)


def _watched(replicas: ReplicaManager, items: Sequence[FetchItem]) -> list[Partition]:
    found = (item.partition or replicas.find(item.topic or "", item.index) for item in items)
    return [partition for partition in found if partition is not None]


def _isolation(message: FetchRequest, replica_id: int) -> Isolation:
    if replica_id >= 0:
        return Isolation.LOG_END
    return Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED


def _replica(message: FetchRequest, version: int) -> tuple[int, int]:
    """(id, broker epoch) of the follower that asks; -1 is a consumer, and so is -2, which debugs."""
    state = message.replica_state
    if version < _REPLICA_STATE_SINCE or state is None:
        return message.replica_id, -1
    return state.replica_id, state.replica_epoch


# -- sessions


def _open_session(
    request: InFlight, message: FetchRequest, services: Services
) -> tuple[Session | None, list[FetchItem]] | ErrorCode:
    """The session that the request goes on with, if it does, and all partitions that it asks for."""
    sessions = services.fetch_sessions
    by_id = request.api_version >= _BY_TOPIC_ID
    if is_full(message.session_epoch):
        if message.session_id != 0:
            sessions.remove(message.session_id)
        return None, list(_items(message, services.replicas, by_id, {}).values())
    found = sessions.find(message.session_id, message.session_epoch, by_id, request.now_ms)
    if isinstance(found, ErrorCode):
        return found
    _items(message, services.replicas, by_id, found.items)
    for topic in message.forgotten_topics_data:
        found.forget(topic.topic_id if by_id else topic.topic, topic.partitions)
    if not found.items:
        sessions.remove(found.session_id)
        return None, []
    items = list(found.items.values())
    for item in items:
        if item.topic is None:
            # The topic may have become known since the session began.
            item.topic = _name(services.replicas, item.topic_id)
    return found, items


def _items(
    message: FetchRequest, replicas: ReplicaManager, by_id: bool, items: dict[Key, FetchItem]
) -> dict[Key, FetchItem]:
    """The request's partitions, put over those in `items`."""
    for topic in message.topics:
        if by_id:
            name = _name(replicas, topic.topic_id)
            key_topic: str | bytes = topic.topic_id
        else:
            name = key_topic = topic.topic
        for asked in topic.partitions:
            key = (key_topic, asked.partition)
            item = items.get(key)
            if item is None:
                item = items[key] = FetchItem(name, topic.topic_id if by_id else b"", asked.partition)
            update_item(item, asked)
    return items


def _name(replicas: ReplicaManager, topic_id: bytes) -> str | None:
    image = replicas.topic_of(topic_id)
    return None if image is None else image.name


def _answer(
    request: InFlight,
    message: FetchRequest,
    services: Services,
    session: Session | None,
    items: Sequence[FetchItem],
    outcome: FetchRound,
) -> Chunks:
    """All of it, or to a session that went on what changed. A new session begins with its first answer."""
    if session is not None:
        if session.epoch != next_epoch(message.session_epoch):
            # The session was used again while this request waited.
            return _encode(request, services, ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, ())
        return _encode(request, services, ErrorCode.NONE, session.session_id, session.changed(items, outcome.results))
    told = list(zip(items, outcome.results, strict=True))
    version = request.api_version
    session_id = 0
    if version >= _SESSIONS_SINCE and message.session_epoch == EPOCH_INITIAL:
        session_id = services.fetch_sessions.begin(
            told,
            uses_topic_ids=version >= _BY_TOPIC_ID,
            is_follower=_replica(message, version)[0] >= 0,
            now_ms=services.host.clock.now_ms(),
        )
    return _encode(request, services, ErrorCode.NONE, session_id, told)


# -- answering


def _encode(request: InFlight, services: Services, error: ErrorCode, session_id: int, told: Told) -> Chunks:
    version = request.api_version
    flexible = version >= _FLEXIBLE
    writer = _Writer(start_response(request.correlation_id, 1 if flexible else 0))
    head = writer.head
    if version >= _SESSIONS_SINCE:
        head += _THROTTLE_ERROR_SESSION.pack(0, error, session_id)
    else:
        head += b"\0\0\0\0"
    topics: dict[str | bytes, list[tuple[FetchItem, FetchResult]]] = {}
    for item, result in told:
        topics.setdefault(item.topic_id if version >= _BY_TOPIC_ID else item.topic or "", []).append((item, result))
    if flexible:
        _write_topics_flexible(writer, topics, version)
        writer.head += _response_tags(request, services, told) if version >= _LEADER_SINCE else b"\0"
    else:
        _write_topics(writer, topics, version)
    return writer.finish()


class _Writer:
    """Collects a response as chunks: fields in `head`, large records as they are."""

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
) -> None:
    """Versions 4-11."""
    writer.head += _INT32.pack(len(topics))
    for topic, rows in topics.items():
        assert isinstance(topic, str)
        name = topic.encode()
        writer.head += _INT16.pack(len(name)) + name + _INT32.pack(len(rows))
        for item, result in rows:
            head = writer.head
            fields = (item.index, result.error, result.high_watermark, result.last_stable_offset)
            if version >= 5:
                head += _PARTITION.pack(*fields, result.log_start_offset)
            else:
                head += _PARTITION_V4.pack(*fields)
            head += _INT32.pack(-1 if result.aborted is None else len(result.aborted))
            for transaction in result.aborted or ():
                head += _TRANSACTION.pack(*transaction)
            if version >= 11:
                head += b"\xff\xff\xff\xff"  # no preferred read replica
            head += _INT32.pack(len(result.data))
            writer.records(result.data)


def _write_topics_flexible(
    writer: _Writer, topics: dict[str | bytes, list[tuple[FetchItem, FetchResult]]], version: int
) -> None:
    """Versions 12-18."""
    write_unsigned_varint(writer.head, len(topics) + 1)
    for topic, rows in topics.items():
        if isinstance(topic, str):
            name = topic.encode()
            write_unsigned_varint(writer.head, len(name) + 1)
            writer.head += name
        else:
            writer.head += topic
        write_unsigned_varint(writer.head, len(rows) + 1)
        for item, result in rows:
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
                head += _PARTITION_V12.pack(*fields, 0 if aborted is None else 1, -1)
            else:
                head += _PARTITION.pack(*fields)
                write_unsigned_varint(head, len(aborted) + 1)
                for transaction in aborted:
                    head += _TRANSACTION.pack(*transaction)
                    head.append(0)
                head += b"\xff\xff\xff\xff"  # no preferred read replica
            if data:
                write_unsigned_varint(head, len(data) + 1)
                writer.records(data)
            else:
                head.append(1)
            if result.diverging is None and result.leader is None:
                writer.head.append(0)
            else:
                writer.head += _partition_tags(result, version)
        writer.head.append(0)


def _partition_tags(result: FetchResult, version: int) -> bytes:
    """Tagged fields 0 (diverging epoch) and 1 (current leader, KIP-951)."""
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


def _response_tags(request: InFlight, services: Services, told: Told) -> bytes:
    """Tagged field 0: where the leaders are that partitions of this answer name."""
    leaders = sorted({result.leader[0] for _, result in told if result.leader is not None})
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
