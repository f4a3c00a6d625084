"""Fetch (1), versions 4-18: reads record batches of partitions on this broker.

Records go from the log to the socket without being decoded. A fetch waits up to `max_wait_ms` for `min_bytes`. Later
versions have sessions (7+, KIP-227), leader epochs (9+, KIP-320), divergence (12+, KIP-595), topic ids (13+, KIP-516),
and the current leader in errors about leader or epoch (16+, KIP-951).

Data that is not in memory is loaded in the background (`replication.fetching`). From version 11, followers serve
consumers, and a leader sends consumers to the nearest replica (KIP-392).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from barnabas.broker.fetching.fetch_responses import encode_fetch_response
from barnabas.broker.fetching.fetch_rights import judge_items, may_fetch_as_replica
from barnabas.broker.fetching.fetch_sessions import EPOCH_INITIAL, Key, Session, is_full, next_epoch, update_item
from barnabas.broker.fetching.repeated_fetch import RepeatedFetch, is_repeatable
from barnabas.broker.requests.client_connection import LONG_FRAME_BYTES
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.broker.requests.steps import Work
from barnabas.common.continuations import run
from barnabas.common.errors import ErrorCode
from barnabas.common.types import EVENTS_TOPIC
from barnabas.common.waiting_events import asks_for_waiting
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.replication.delayed_fetch import DelayedFetch, DelayedSessionFetch
from barnabas.replication.fetch_items import FetchItem, FetchPlan, FetchResult, Reader
from barnabas.replication.fetching import ColdFetch, FetchRound, read_more
from barnabas.replication.partition import Isolation, Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.replication.traffic import count_sent

_SESSIONS_SINCE = 7
_ANY_REPLICA_SINCE = 11
_BY_TOPIC_ID = 13
_REPLICA_STATE_SINCE = 15
#: The replica ids of consumers, and of debugging clients, which can read any replica.
_CONSUMER = -1
_DEBUGGER = -2
#: The limit of a response, which is read in one turn of the loop: copying 50 MB would block it for more than 50 ms.
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


#: The number of partitions per step: to read, in a request, and to count in its response.
_READ_AT_ONCE = 25
_ROWS_PER_STEP = 100
_COUNTED_PER_STEP = 1_000
#: The number of partitions that a fetch outside of a session watches while it waits.
_WATCHED_MAX = 2_000
#: How long a follower waits that reads more, and for which no session is free.
_UNWATCHED_FOLLOWER_MS = 100


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Work:
    """Reads and answers now, or waits for the disk or for more records."""
    if len(frame) <= LONG_FRAME_BYTES:
        connection = request.connection
        repeated = connection.repeated
        if isinstance(repeated, RepeatedFetch) and repeated.take():
            return _serve_repeated(request, repeated, services)
        message, _ = codec.decode(FetchRequest, request.api_version, frame, position)
        reader = _reader(message, request.api_version)
        if is_repeatable(message, request.api_version) and not connection.in_flight:
            connection.repeated = RepeatedFetch(request, message, reader, frame, position)
        return _serve(request, message, reader, services)
    return _decode_and_serve(request, bytes(frame), position, services)


def _decode_and_serve(request: InFlight, frame: bytes, position: int, services: Services) -> Work:
    message, _ = yield from codec.decode_in_steps(FetchRequest, request.api_version, frame, position)
    try:
        chunks = yield from _serve(request, message, _reader(message, request.api_version), services)
    finally:
        services.steps.free(message)
    return chunks


def _serve_repeated(request: InFlight, repeated: RepeatedFetch, services: Services) -> Work:
    """Serves a request like `_serve`, in a session that exists and with one partition."""
    message, reader = repeated.message, repeated.reader
    is_forged = reader.replica_id >= 0 and not may_fetch_as_replica(request, services.authorizer)
    if is_forged:
        reader = Reader(Isolation.READ_UNCOMMITTED)
    session = services.fetch_sessions.find(message.session_id, message.session_epoch, True, request.now_ms)
    if isinstance(session, ErrorCode):
        return encode_fetch_response(request, services, session, 0, ())
    session.begin_fetch(reader, request.now_ms)
    named: list[FetchItem] = []
    _take_rows(message.topics[0], message.topics[0].partitions, services.replicas, True, session.items, named)
    session.keep(named[0])
    _name_items(session, services.replicas)
    plan = _plan(request, message, reader, services)
    return _PendingFetch(request, message, services, session, (), plan, is_forged).read()


def _serve(
    request: InFlight, message: FetchRequest, reader: Reader, services: Services
) -> Generator[int, None, Chunks | None]:
    is_forged = reader.replica_id >= 0 and not may_fetch_as_replica(request, services.authorizer)
    if is_forged:
        reader = Reader(Isolation.READ_UNCOMMITTED)
    opened = yield from _open_session(request, message, reader, services)
    if isinstance(opened, ErrorCode):
        refusal = yield from encode_fetch_response(request, services, opened, 0, ())
        return refusal
    session, items = opened
    plan = _plan(request, message, reader, services)
    pending = _PendingFetch(request, message, services, session, items, plan, is_forged)
    chunks = yield from pending.read()
    return chunks


def _plan(request: InFlight, message: FetchRequest, reader: Reader, services: Services) -> FetchPlan:
    max_bytes = min(message.max_bytes, services.config.int_of("fetch.max.bytes"), ANSWER_BYTES_MAX)
    is_exhausted = False
    throttle = request.throttle
    if throttle is not None:
        throttle.is_exempt = reader.replica_id >= 0
        if not throttle.is_exempt:
            max_bytes = min(max_bytes, throttle.fetch_bytes_max)
    if reader.replica_id < 0:
        # A batch above the limits is not returned either if no memory is left, so the reader waits.
        is_exhausted = services.memory.is_exhausted
        max_bytes = services.memory.answer_bytes_max(max_bytes)
    is_consumer = reader.replica_id == _CONSUMER and request.api_version >= _ANY_REPLICA_SINCE
    selects = is_consumer and services.replicas.environment.selector is not None
    return FetchPlan(
        reader,
        min(message.min_bytes, max_bytes),
        max_bytes,
        any_replica=is_consumer or reader.replica_id == _DEBUGGER,
        rack=message.rack_id if selects else "",
        listener=request.listener,
        min_one_batch=not is_exhausted,
    )


def _read_in_steps(
    services: Services, session: Session | None, items: Sequence[FetchItem], plan: FetchPlan
) -> Generator[int, None, FetchRound]:
    """Reads many partitions."""
    outcome = FetchRound(items, plan)
    for begin in range(0, len(items), _READ_AT_ONCE):
        if begin:
            yield 1
        some = items[begin : begin + _READ_AT_ONCE]
        read_more(services.replicas, some, outcome)
        if session is not None:
            session.watch(some)
    return outcome


def _must_wait(outcome: FetchRound, plan: FetchPlan, message: FetchRequest) -> bool:
    """Returns whether the fetch waits for more records."""
    return (
        outcome.can_wait and not outcome.is_urgent and outcome.size_bytes < plan.min_bytes and message.max_wait_ms > 0
    )


class _PendingFetch:
    """A fetch that is not answered immediately: it waits for the disk, for more records, or for both in turn.

    Its deadline ends the wait for records, but not the loading of data that has begun.
    """

    __slots__ = (
        "_is_forged",
        "_items",
        "_message",
        "_plan",
        "_progress",
        "_request",
        "_rules_version",
        "_services",
        "_session",
    )

    def __init__(
        self,
        request: InFlight,
        message: FetchRequest,
        services: Services,
        session: Session | None,
        items: Sequence[FetchItem],
        plan: FetchPlan,
        is_forged: bool,
    ) -> None:
        self._is_forged = is_forged
        self._request = request
        self._message = message
        self._services = services
        self._session = session
        self._items = items
        self._plan = plan
        self._progress = 0 if session is None else session.progress
        self._rules_version = services.rules_version

    def read(self, *, may_wait: bool = True) -> Generator[int, None, Chunks | None]:
        """Reads all partitions. Returns the response, or None if it is sent later."""
        services, authorizer = self._services, self._services.authorizer
        if authorizer is not None:
            if self._have_rules_changed() and self._plan.replica_id >= 0:
                self._is_forged = not may_fetch_as_replica(self._request, authorizer)
            self._rules_version = authorizer.version
            yield from judge_items(
                self._request,
                authorizer,
                self._session,
                self._items,
                is_replica=self._plan.replica_id >= 0,
                is_forged=self._is_forged,
            )
        session, items = self._session, self._items
        if session is not None:
            items = list(session.active)  # The others have not changed.
        if len(items) <= _READ_AT_ONCE:
            outcome = FetchRound(items, self._plan)
            read_more(services.replicas, items, outcome)
            if self._plan.replica_id >= 0:
                # The position of the follower can have advanced the HW: producers that wait for it come first.
                services.turn_output.send()
            if session is not None:
                session.watch(items)
        else:
            slices = services.steps.slices
            outcome = yield from _read_in_steps(services, session, items, self._plan)
            # A round read in one turn is consistent. A round read in several may have missed records that arrived in
            # between, of which no notification comes.
            may_wait = may_wait and not (slices != services.steps.slices and self._has_moved(outcome))
        if session is not None and len(items) < len(session.items):
            outcome.can_wait = True
        if self._is_delayed(outcome, may_wait):
            return None
        chunks = yield from _answer(self._request, self._message, services, session, self._plan, outcome)
        return chunks

    def _continue(self, outcome: FetchRound, *, may_wait: bool) -> Generator[int, None, Chunks | None]:
        """Returns the response once the partitions are loaded, or None if the fetch has to wait."""
        if self._have_rules_changed():
            chunks = yield from self.read(may_wait=may_wait)
            return chunks
        if self._is_delayed(outcome, may_wait):
            return None
        chunks = yield from _answer(self._request, self._message, self._services, self._session, self._plan, outcome)
        return chunks

    def _have_rules_changed(self) -> bool:
        """Returns whether a right can have ended since the partitions were judged."""
        return self._services.rules_version != self._rules_version

    def _is_delayed(self, outcome: FetchRound, may_wait: bool) -> bool:
        """Returns whether the fetch has to wait, for the disk or for more records; if so, the wait has begun."""
        if outcome.cold:
            self._load(outcome, may_wait)
            return True
        if not may_wait or not _must_wait(outcome, self._plan, self._message):
            return False
        wait_ms, follower = self._message.max_wait_ms, self._plan.replica_id
        if follower >= 0 and self._is_long:
            if self._message.session_epoch == EPOCH_INITIAL and self._services.fetch_sessions.has_room:
                return False  # The next fetch continues the session that this response begins, and waits.
            wait_ms = min(wait_ms, _UNWATCHED_FOLLOWER_MS)
        if follower >= 0:
            wait_ms = self._services.replicas.environment.follower_waits.wait_ms(follower, wait_ms)
        deadline_ms = self._request.now_ms + wait_ms
        if self._services.host.clock.now_ms() >= deadline_ms:
            return False
        self._wait(outcome, deadline_ms)
        return True

    def _load(self, outcome: FetchRound, may_wait: bool) -> None:
        request = self._request
        connection = request.connection

        def take(error: BaseException | None) -> None:
            if error is not None:
                raise error
            if fetch.take():
                connection.end_exclusive()
                request.when_abandoned(None)
                self._begin(self._continue(outcome, may_wait=may_wait and not self._has_moved(outcome)))

        fetch = ColdFetch(self._services.replicas, self._plan, outcome, lambda error: run(request, take, error))
        connection.begin_exclusive()
        request.when_abandoned(fetch.cancel)
        fetch.load()

    def _has_moved(self, outcome: FetchRound) -> bool:
        """Returns whether more records became readable since the fetch read its partitions; no notification follows for
        these.
        """
        if self._session is not None:
            return self._session.progress != self._progress
        moved = _has_moved_for_follower if self._plan.isolation is Isolation.LOG_END else _has_moved_for_consumer
        return any(
            item.partition is not None and moved(item, result, item.partition)
            for item, result in zip(outcome.items, outcome.results, strict=True)
        )

    @property
    def _is_long(self) -> bool:
        """Returns whether the fetch reads more partitions, outside of a session, than it can watch."""
        return self._session is None and len(self._items) > _WATCHED_MAX

    def _wait(self, outcome: FetchRound, deadline_ms: int) -> None:
        request, replicas = self._request, self._services.replicas
        missing_bytes = self._plan.min_bytes - outcome.size_bytes
        follower, session = self._plan.replica_id, self._session
        waits = replicas.environment.follower_waits if follower >= 0 else None
        delayed: DelayedFetch
        if session is not None:
            session.watch(session.active)
            delayed = DelayedSessionFetch(session, missing_bytes, self._answer_later)
        else:
            # Watching tens of thousands of partitions takes too long for one turn, so such a fetch waits until its
            # deadline. Clients that read so many partitions have sessions.
            watched = [] if self._is_long else _watched(replicas, self._items)
            delayed = DelayedFetch(watched, self._plan.isolation, missing_bytes, self._answer_later)
        if waits is not None:
            delayed.end_with(follower, waits)
        request.when_abandoned(delayed.cancel)
        replicas.purgatory.expire_at(deadline_ms, delayed)

    def _answer_later(self) -> None:
        """Reads again. The delayed fetch calls this for the request that it belongs to."""
        self._plan.is_first_read = False
        self._begin(self.read(may_wait=False))

    def _begin(self, work: Generator[int, None, Chunks | None]) -> None:
        """Does this work of the request in steps, and sends the response if the work returns one."""
        self._services.steps.begin(work, self._reply, self._request)

    def _reply(self, chunks: Chunks | None) -> None:
        if chunks is not None:
            self._request.reply_encoded(chunks)


def _has_moved_for_consumer(item: FetchItem, result: FetchResult, partition: Partition) -> bool:
    return (
        result.high_watermark != partition.high_watermark or result.last_stable_offset != partition.last_stable_offset
    )


def _has_moved_for_follower(item: FetchItem, result: FetchResult, partition: Partition) -> bool:
    """The result does not contain the LEO at the time of the read. Without data it was the offset of the follower."""
    if item.is_throttled:
        return False
    return bool(result.data) or partition.leadership is None or partition.log.log_end_offset != item.offset


def _watched(replicas: ReplicaManager, items: Sequence[FetchItem]) -> list[Partition]:
    found = (item.partition or replicas.find(item.topic or "", item.index) for item in items if not item.is_throttled)
    return [partition for partition in found if partition is not None]


def _reader(message: FetchRequest, version: int) -> Reader:
    """Returns the follower or consumer that sent the request."""
    state = message.replica_state
    if version < _REPLICA_STATE_SINCE or state is None:
        replica_id, replica_epoch = message.replica_id, -1
    else:
        replica_id, replica_epoch = state.replica_id, state.replica_epoch
    if replica_id >= 0:
        return Reader(Isolation.LOG_END, replica_id, replica_epoch)
    isolation = Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    return Reader(isolation, replica_id, replica_epoch)


# -- sessions


def _open_session(
    request: InFlight, message: FetchRequest, reader: Reader, services: Services
) -> Generator[int, None, tuple[Session | None, list[FetchItem]] | ErrorCode]:
    """Returns the session that the request continues; without a session, the partitions that the request names."""
    sessions = services.fetch_sessions
    by_id = request.api_version >= _BY_TOPIC_ID
    if is_full(message.session_epoch):
        if message.session_id != 0:
            sessions.remove(message.session_id)
        requested: dict[Key, FetchItem] = {}
        yield from _take_requested(message, services.replicas, by_id, requested)
        return None, list(requested.values())
    found = sessions.find(message.session_id, message.session_epoch, by_id, request.now_ms)
    if isinstance(found, ErrorCode):
        return found
    found.begin_fetch(reader, request.now_ms)
    named = yield from _take_requested(message, services.replicas, by_id, found.items)
    for place, item in enumerate(named, 1):
        found.keep(item)
        if place % _ROWS_PER_STEP == 0:
            yield 1
    left = _ROWS_PER_STEP
    for topic in message.forgotten_topics_data:
        for begin in range(0, len(topic.partitions), _ROWS_PER_STEP):
            if left <= 0:
                left = _ROWS_PER_STEP
                yield 1
            indexes = topic.partitions[begin : begin + _ROWS_PER_STEP]
            found.forget(topic.topic_id if by_id else topic.topic, indexes)
            left -= len(indexes)
    if not found.items:
        sessions.remove(found.session_id)
        return None, []
    _name_items(found, services.replicas)
    return found, []


def _name_items(session: Session, replicas: ReplicaManager) -> None:
    """Looks up the topics that were unknown: their names can have become known since the session began."""
    for item in session.active:
        if item.topic is None:
            item.topic = _name(replicas, item.topic_id)


def _take_requested(
    message: FetchRequest, replicas: ReplicaManager, by_id: bool, items: dict[Key, FetchItem]
) -> Generator[int, None, list[FetchItem]]:
    """Updates `items` with the partitions of the request, and returns these items."""
    named: list[FetchItem] = []
    done = 0
    for topic in message.topics:
        for begin in range(0, len(topic.partitions), _ROWS_PER_STEP):
            if len(named) - done >= _ROWS_PER_STEP:
                done = len(named)
                yield 1
            _take_rows(topic, topic.partitions[begin : begin + _ROWS_PER_STEP], replicas, by_id, items, named)
    return named


def _take_rows(
    topic: FetchRequest.FetchTopic,
    rows: Sequence[FetchRequest.FetchPartition],
    replicas: ReplicaManager,
    by_id: bool,
    items: dict[Key, FetchItem],
    named: list[FetchItem],
) -> None:
    """Updates `items` with rows of one topic, and appends them to `named`."""
    topic_id = topic.topic_id if by_id else b""
    key_topic = topic_id or topic.topic
    for row in rows:
        key = (key_topic, row.partition)
        item = items.get(key)
        if item is None:
            name = _name(replicas, topic_id) if by_id else topic.topic
            item = items[key] = FetchItem(name, topic_id, row.partition)
        named.append(update_item(item, row))


def _name(replicas: ReplicaManager, topic_id: bytes) -> str | None:
    image = replicas.topic_of(topic_id)
    return None if image is None else image.name


def _answer(
    request: InFlight,
    message: FetchRequest,
    services: Services,
    session: Session | None,
    plan: FetchPlan,
    outcome: FetchRound,
) -> Generator[int, None, Chunks]:
    """Encodes all results; if the request continues a session, only those that changed. A new session begins with its
    first response."""
    version = request.api_version
    throttle = request.throttle
    size_bytes = sum(len(result.data) for result in outcome.results) if throttle is not None else 0
    if throttle is not None and not throttle.is_exempt and throttle.fetched(size_bytes):
        chunks = yield from _throttled(request, message, services, session)
        return chunks
    if session is not None:
        session_id = session.session_id
        if session.epoch != next_epoch(message.session_epoch):
            # The session was used by a later request while this one waited.
            chunks = yield from encode_fetch_response(
                request, services, ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, ()
            )
            return chunks
        reported = yield from _changed(session, outcome)
    else:
        reported = list(zip(outcome.items, outcome.results, strict=True))
        session_id = 0
        if version >= _SESSIONS_SINCE and message.session_epoch == EPOCH_INITIAL:
            now_ms = services.host.clock.now_ms()
            uses_ids = version >= _BY_TOPIC_ID
            session_id = yield from services.fetch_sessions.begin(
                reported, uses_topic_ids=uses_ids, reader=plan.reader, now_ms=now_ms
            )
    is_follower = plan.replica_id >= 0
    if is_follower:
        services.replicas.quotas.count_sent(reported)
    for place, (item, result) in enumerate(reported, 1):
        if place % _COUNTED_PER_STEP == 0:
            yield 1
        if result.data and item.partition is not None:
            count_sent(item.partition.traffic, len(result.data), to_follower=is_follower)
    waiting = b""
    if message.unknown_tags and asks_for_waiting(message.unknown_tags) and _may_read_journal(outcome):
        waiting = services.waiting_events()
    chunks = yield from encode_fetch_response(request, services, ErrorCode.NONE, session_id, reported, waiting)
    return chunks


def _changed(session: Session, outcome: FetchRound) -> Generator[int, None, list[tuple[FetchItem, FetchResult]]]:
    items, results = outcome.items, outcome.results
    if len(items) <= _COUNTED_PER_STEP:
        return session.changed(items, results)
    reported: list[tuple[FetchItem, FetchResult]] = []
    for begin in range(0, len(items), _COUNTED_PER_STEP):
        some = slice(begin, begin + _COUNTED_PER_STEP)
        reported += session.changed(items[some], results[some])
        yield 1
    return reported


def _may_read_journal(outcome: FetchRound) -> bool:
    return any(item.topic == EVENTS_TOPIC and not item.is_denied for item in outcome.items)


def _throttled(
    request: InFlight, message: FetchRequest, services: Services, session: Session | None
) -> Generator[int, None, Chunks]:
    """Encodes the response to a client above its quota: no data, and the time to pause. The session does not change, so
    the next fetch returns what this one would have returned."""
    error, session_id = ErrorCode.NONE, 0
    if session is not None:
        session_id = session.session_id
        if session.epoch != next_epoch(message.session_epoch):
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    chunks = yield from encode_fetch_response(request, services, error, session_id, ())
    return chunks
