"""Parts of a broker that decide about connections and sessions, each against a plain model: memory, muting, recently
fenced brokers, and which fetch session must make room.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from barnabas.broker.fetching.fetch_sessions import Session, SessionCache
from barnabas.broker.recently_fenced import RecentlyFenced
from barnabas.broker.requests.memory_budget import MemoryBudget
from barnabas.broker.throttling.muting import BY_QUOTA, mute
from barnabas.common.errors import ErrorCode
from barnabas.protocol.frame_reader import SHARED_AREA_BYTES
from barnabas.replication.fetch_items import Reader
from barnabas.replication.partition import Isolation
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost

_LIMIT, _SMALL_READ, _SMALL_FRAME, _PIECE = 10_000_000, 16_384, 1 << 20, 65_536
_TICK_MS, _STALLED_MS, _SHORT_MS, _GRANT_MS = 50, 5_000, 10_000, 1_000


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"parts: {what} is {found!r}, it should be {expected!r}")


# -- memory


class Area:
    """The receive buffer, with the bytes that all connections hold."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.read_bytes_max = 0


class Peer:
    def __init__(self, name: int) -> None:
        self.name = name
        self.held_bytes = 0
        self.unsent_bytes = 0
        self.missing_bytes = 0
        self.is_waiting = False
        self.is_aborted = False
        #: Whether it closes as soon as it may continue, because its client has gone meanwhile.
        self.is_gone = False
        self.forget: Callable[[Peer], None] | None = None

    def wait_for_memory(self) -> None:
        self.is_waiting = True

    def on_memory_available(self) -> None:
        self.is_waiting = False
        if self.is_gone and self.forget is not None:
            self.forget(self)

    def abort(self, cause: str) -> None:
        self.is_aborted = True


class MemoryModel:
    """The decisions that a budget must make about these peers; times in ms."""

    def __init__(self) -> None:
        self.known: dict[Peer, list[int]] = {}
        self.waiting: dict[Peer, None] = {}
        self.granted: set[Peer] = set()
        self.short_since: int | None = None
        self.next_tick = 0
        self.unsent = 0
        self.closed = 0

    def used(self, area: Area) -> int:
        return area.held_bytes + self.unsent

    def measure(self) -> None:
        self.unsent = sum(peer.unsent_bytes for peer in self.known)

    def begin(self, now_ms: int) -> None:
        if self.short_since is None:
            self.measure()
            self.short_since, self.next_tick = now_ms, now_ms + _TICK_MS

    def received(self, peer: Peer, area: Area, now_ms: int) -> None:
        self.known.setdefault(peer, [peer.held_bytes, 0, now_ms])
        if self.short_since is None and self.used(area) <= _LIMIT * 3 // 4:
            return
        self.begin(now_ms)
        if peer in self.waiting or peer in self.granted or not peer.missing_bytes:
            return
        limit = _LIMIT if peer.missing_bytes + peer.held_bytes <= _SMALL_FRAME else _LIMIT * 3 // 4
        if self.used(area) + peer.missing_bytes > limit:
            self.waiting[peer] = None

    def sent(self, peer: Peer, count: int, area: Area, now_ms: int) -> None:
        self.unsent += count
        self.known.setdefault(peer, [0, peer.unsent_bytes, now_ms])
        if self.short_since is None:
            if self.used(area) > _LIMIT * 3 // 4:
                self.measure()
            if self.used(area) <= _LIMIT * 3 // 4:
                return
            self.begin(now_ms)
        if peer.unsent_bytes >= _SMALL_READ:
            self.waiting.setdefault(peer)

    def forget(self, peer: Peer) -> None:
        self.known.pop(peer, None)
        self.waiting.pop(peer, None)
        self.granted.discard(peer)

    def tick(self, area: Area, now_ms: int) -> list[Peer]:
        """Returns the connections that must be closed."""
        self.next_tick = now_ms + _TICK_MS
        self.measure()
        for peer, seen in list(self.known.items()):
            if not peer.held_bytes and not peer.unsent_bytes and peer not in self.waiting:
                self.forget(peer)
            elif peer.held_bytes != seen[0] or peer.unsent_bytes < seen[1] or (not seen[1] and peer.unsent_bytes):
                seen[:] = [peer.held_bytes, peer.unsent_bytes, now_ms]
            else:
                seen[1] = peer.unsent_bytes
        closed = self._stalled(area, now_ms) if self.used(area) > _LIMIT // 2 else []
        self._resume(area, now_ms)
        if not self.waiting and self.used(area) <= _LIMIT // 2:
            self.short_since = None
        return closed

    def _stalled(self, area: Area, now_ms: int) -> list[Peer]:
        assert self.short_since is not None
        late = []
        for peer, (held, unsent, since_ms) in self.known.items():
            reads = peer in self.waiting and not unsent
            is_late = not reads or now_ms - self.short_since >= _SHORT_MS
            if is_late and held + unsent >= _SMALL_READ and now_ms - since_ms >= _STALLED_MS:
                late.append((held + unsent, peer))
        closed, used = [], self.used(area)
        for size, peer in sorted(late, key=lambda each: -each[0]):
            if used > _LIMIT // 2:
                used -= size
                closed.append(peer)
                self.forget(peer)
        self.closed += len(closed)
        return closed

    def _resume(self, area: Area, now_ms: int) -> None:
        used = self.used(area)
        readers = []
        for peer in list(self.waiting):
            if peer.unsent_bytes and used * 2 > _LIMIT:
                continue
            if peer.missing_bytes:
                readers.append(peer)
            else:
                self._go_on(peer, now_ms)
        readers.sort(key=lambda each: each.missing_bytes)
        room, left = _LIMIT * 3 // 4 - used, list(readers)
        while left:
            room -= min(left[0].missing_bytes, _PIECE)
            if room < 0:
                break
            self._go_on(left.pop(0), now_ms)
        is_stuck = room < 0 and not any(now_ms - self.known[each][2] < _GRANT_MS for each in self.granted)
        if is_stuck and left:
            self.granted.add(left[0])
            self._go_on(left[0], now_ms)

    def _go_on(self, peer: Peer, now_ms: int) -> None:
        del self.waiting[peer]
        self.known[peer][2] = now_ms
        if peer.is_gone:
            self.forget(peer)


class MemoryWorld:
    """A budget with peers that send and read, beside its model."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._host, self._area, self._model = MemoryHost(seed=1), Area(), MemoryModel()
        area: Any = self._area
        self._budget = MemoryBudget(area, self._host.clock, self._host.timers, self._host.memory, _LIMIT)
        self._area.read_bytes_max = 77
        self._sizes = [77]
        self._peers = [Peer(name) for name in range(8)]
        self._others = 0
        self._budget.count_bytes_of(lambda: self._others)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step(self._random.choice(self._peers), self._random.random())
            self._compare()
        for peer in self._peers:
            self._area.held_bytes -= peer.held_bytes
            peer.held_bytes = peer.unsent_bytes = peer.missing_bytes = 0
        self._run_for(500)
        check("whether memory is free again", (self._budget.is_short, self._budget.waiting_count), (False, 0))
        self._others = 77
        check("the bytes of other parts", self._budget.used_bytes - self._model.used(self._area), 77)

    def _step(self, peer: Peer, kind: float) -> None:
        random, now_ms, area, model = self._random, self._host.clock.now_ms(), self._area, self._model
        if kind < 0.35 and not peer.is_waiting:
            size = random.choice((1_000, 16_383, 16_384, 500_000, 1_000_000, 3_000_000))
            peer.held_bytes += size
            area.held_bytes += size
            peer.missing_bytes = random.choice((0, 10_000, 60_000, 1_000_000, 2_500_000))
            model.received(peer, area, now_ms)
            self._budget.received(peer)
        elif kind < 0.6:
            size = random.choice((1_000, 16_384, 800_000, 2_500_000))
            peer.unsent_bytes += size
            model.sent(peer, size, area, now_ms)
            self._budget.sent(peer, size)
        elif kind < 0.7:
            area.held_bytes -= peer.held_bytes
            peer.held_bytes = peer.missing_bytes = 0
        elif kind < 0.78:
            peer.unsent_bytes = random.choice((0, peer.unsent_bytes // 2))
        elif kind < 0.82:
            model.forget(peer)
            self._budget.forget(peer)
            self._close(peer)
        elif kind < 0.85:
            peer.is_gone, peer.forget = True, self._budget.forget
        elif kind < 0.9:
            _answer_sizes(self._budget, model, area, random.choice((1_000, 100_000, 5_000_000, 20_000_000)))
        else:
            self._run_for(random.choice((1, 49, 50, 200, 1_000, 6_000)))

    def _run_for(self, duration_ms: int) -> None:
        host, model = self._host, self._model
        until_ms = host.clock.now_ms() + duration_ms
        while model.short_since is not None and model.next_tick <= until_ms:
            at_ms = model.next_tick
            host.time.run_until(at_ms - 1)
            closed = model.tick(self._area, at_ms)
            host.time.run_until(at_ms)
            aborted = {peer.name for peer in self._peers if peer.is_aborted}
            check("closed connections", aborted, {peer.name for peer in closed})
            gone = [peer for peer in self._peers if peer.is_gone and not peer.is_waiting]
            for peer in dict.fromkeys([*closed, *gone]):
                model.forget(peer)
                self._budget.forget(peer)
                self._close(peer)
            check("the number of closed connections", self._budget.closed_count, model.closed)
            self._compare()
        host.time.run_until(until_ms)

    def _close(self, peer: Peer) -> None:
        self._area.held_bytes -= peer.held_bytes
        self._peers[self._peers.index(peer)] = Peer(peer.name)

    def _compare(self) -> None:
        budget, model = self._budget, self._model
        waiting = {peer.name for peer in self._peers if peer.is_waiting}
        check("waiting connections", waiting, {peer.name for peer in model.waiting})
        check("the number of waiting connections", budget.waiting_count, len(model.waiting))
        used = model.used(self._area)
        check("the used bytes", budget.used_bytes, used)
        is_short = model.short_since is not None
        check("whether memory is short", budget.is_short, is_short)
        check("whether memory is exhausted", budget.is_exhausted, is_short and used >= _LIMIT)
        holders: Any = budget.holders
        held = {peer.name for peer in {*model.known, *model.waiting, *model.granted}}
        check("the holders", {peer.name for peer in holders}, held)
        if is_short:
            self._sizes.append(SHARED_AREA_BYTES)
        check("the size of reads", self._area.read_bytes_max, _SMALL_READ if is_short else self._sizes[-1])


def explore_memory(random: Random) -> None:
    MemoryWorld(random).run(250)


def _answer_sizes(budget: MemoryBudget, model: MemoryModel, area: Area, wanted: int) -> None:
    room = _LIMIT - model.used(area)
    expected = wanted
    if model.short_since is not None or wanted > room - _LIMIT // 4:
        if model.short_since is None:
            model.measure()
        expected = min(wanted, max(65_536, (_LIMIT - model.used(area)) // 8))
    check(f"the size of an answer of {wanted}", budget.answer_bytes_max(wanted), expected)


# -- muting


class Connection:
    def __init__(self) -> None:
        self.is_closed = False
        self.muting: Any = None
        self.calls: list[tuple[str, int]] = []

    def pause_writing(self, reason: int = 1) -> None:
        self.calls.append(("pause", reason))

    def resume_writing(self, reason: int = 1) -> None:
        self.calls.append(("resume", reason))


def explore_muting(random: Random) -> None:
    host, connection, until_ms = MemoryHost(seed=1), Connection(), 0
    any_host: Any = host
    for _ in range(40):
        now_ms = host.clock.now_ms()
        connection.calls.clear()
        if random.random() < 0.5:
            time_ms = random.choice((1, 5, 20, 20))
            mute(connection, time_ms, any_host)
            expected = [("pause", BY_QUOTA)] if now_ms + time_ms > until_ms else []
            until_ms = max(until_ms, now_ms + time_ms)
        else:
            target_ms = max(now_ms, until_ms + random.choice((-1, 0, 1)))
            host.time.run_until(target_ms)
            expected = [("resume", BY_QUOTA)] if now_ms < until_ms <= target_ms else []
        check("the muting of a connection", connection.calls, expected)
    mute(connection, 10, any_host)
    connection.muting.close()
    mute(connection, 20, any_host)
    connection.calls.clear()
    host.time.run_for(100)
    check("the muting of a closed connection", connection.calls, [])
    closed = Connection()
    closed.is_closed = True
    mute(closed, 10, any_host)
    check("whether a closed connection is muted", (closed.muting, closed.calls), (None, []))


# -- recently fenced brokers


class _Broker:
    def __init__(self, broker_id: int, fenced: bool, leaves: bool) -> None:
        self.broker_id, self.fenced, self.in_controlled_shutdown = broker_id, fenced, leaves


class _Image:
    def __init__(self, brokers: dict[int, _Broker], changed: set[int]) -> None:
        self.brokers, self.changed_brokers = brokers, changed


def explore_fenced(random: Random) -> None:
    host, fenced = MemoryHost(seed=1), RecentlyFenced()
    subscribers: list[Any] = []

    class Store:
        def subscribe(self, subscriber: Any) -> None:
            subscribers.append(subscriber)

    store: Any = Store()
    check("fenced brokers before the start", fenced.listed(), [])
    fenced.follow(store, host.clock)
    brokers: dict[int, _Broker] = {}
    listed: dict[int, tuple[_Broker, int]] = {}
    for _ in range(60):
        changed: set[int] = set()
        for broker_id in random.sample(range(1, 5), random.randint(0, 3)):
            before = brokers.get(broker_id)
            kind = random.random()
            changed.add(broker_id)
            if kind < 0.5:
                brokers[broker_id] = _Broker(broker_id, False, random.random() < 0.3)
                listed.pop(broker_id, None)
                continue
            if kind < 0.8:
                brokers[broker_id] = _Broker(broker_id, True, False)
            else:
                brokers.pop(broker_id, None)
            if before is not None and not before.fenced and not before.in_controlled_shutdown:
                listed[broker_id] = (before, host.clock.now_ms() + 3_000)
        image = _Image(dict(brokers), changed)
        (subscriber,) = subscribers
        subscriber(image, image)
        host.time.run_for(random.choice((0, 1, 1_000, 1_999, 2_999, 3_000)))
        now_ms = host.clock.now_ms()
        found = {id(broker) for broker in fenced.listed()}
        check("recently fenced brokers", found, {id(broker) for broker, at in listed.values() if now_ms < at})


# -- fetch sessions


def explore_sessions(random: Random) -> None:
    """A full cache: an idle session makes room, or one of a lower rank that is old, at most one search a second."""
    host = MemoryHost(seed=1)
    work: list[int] = []
    slots = random.choice((1, 3))
    cache = SessionCache(slots, host.random, lambda steps: work.append(sum(steps)))
    sessions: dict[int, list[int]] = {}
    scanned_ms, evictions = -1_000, 0
    for _ in range(80):
        now_ms = host.clock.now_ms()
        kind = random.random()
        if kind < 0.4:
            follower = random.random() < 0.3
            reader = Reader(Isolation.LOG_END, 2, 7) if follower else Reader(Isolation.READ_UNCOMMITTED)
            victim, scanned_ms = _victim(sessions, slots, follower, now_ms, scanned_ms)
            session_id = _result(cache.begin([], uses_topic_ids=True, now_ms=now_ms, reader=reader))
            check("whether a session begins", session_id != 0, victim is not None)
            if victim is not None:
                if victim:
                    del sessions[victim]
                    evictions += 1
                sessions[session_id] = [now_ms, now_ms, 1, follower]
        elif kind < 0.7 and sessions:
            session_id = random.choice(list(sessions))
            epoch = sessions[session_id][2]
            _find(cache, sessions, session_id, random.choice((epoch, epoch, epoch + 1)), random.random() < 0.9, now_ms)
        elif kind < 0.75 and sessions:
            session_id = random.choice(list(sessions))
            cache.remove(session_id)
            cache.remove(session_id)
            del sessions[session_id]
        else:
            host.time.run_for(random.choice((1, 999, 1_000, 60_000, 120_000, 120_001)))
        check("the sessions", list(cache._sessions), list(sessions))
        counts = (len(cache), cache.has_room, cache.evictions, cache.partition_count)
        check("the counts of sessions", counts, (len(sessions), len(sessions) < slots, evictions, 0))


def _find(
    cache: SessionCache, sessions: dict[int, list[int]], session_id: int, epoch: int, by_id: bool, now_ms: int
) -> None:
    found = cache.find(session_id, epoch, by_id, now_ms)
    expected: object = True
    if epoch != sessions[session_id][2]:
        expected = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    elif not by_id:
        expected = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    check("the result of a search", isinstance(found, Session) or found, expected)
    if expected is True:
        assert isinstance(found, Session)
        state = sessions.pop(session_id)
        state[1], state[2] = now_ms, epoch + 1
        sessions[session_id] = state
        check("the next epoch", found.epoch, epoch + 1)
    check("an unknown session", cache.find(-5, 1, True, now_ms), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def _victim(
    sessions: dict[int, list[int]], slots: int, follower: bool, now_ms: int, scanned_ms: int
) -> tuple[int | None, int]:
    """Returns the session that ends for a new one: 0 if there is room, None if the new one does not begin."""
    if len(sessions) < slots:
        return 0, scanned_ms
    oldest = next(iter(sessions))
    if now_ms - sessions[oldest][1] > 120_000:
        return oldest, scanned_ms
    if now_ms - scanned_ms < 1_000:
        return None, scanned_ms
    allowed = [
        (bool(state[3]), session_id)
        for session_id, state in sessions.items()
        if now_ms - state[0] > 120_000 or (follower and not state[3])
    ]
    if not allowed:
        return None, now_ms
    is_follower, session_id = min(allowed)
    # Both sessions are empty, so only their kinds differ; of equal kinds the new one has no higher rank.
    return (session_id if (follower, 0) >= (is_follower, session_id) else None), now_ms


def _result(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
