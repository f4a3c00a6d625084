"""The writes of an active controller: multis that begin with a check of `/controller_epoch`, in groups and in order.

    units  --group-->  M[check /controller_epoch, write, write ...]  --reply-->  what it means

    all parts succeeded            the units are done
    the check failed               another controller claimed: nothing more is written, not even what was queued (G31)
    the request was refused whole  it is too large for a frame, or not permitted: as if another part had failed
    another part failed            no unit of the group happened: the group again, one unit at a time, nothing else
                                   between; a unit that is refused alone is read back
    the answer was lost            nobody knows: the same group again, when the session is connected again
    read back: all as wanted       the unit is done, even if another controller wrote it (G33)
    read back: partly as wanted    the rest of the unit is written
    read back: a znode to `put`    the unit again, which now sets it
    read back: otherwise           a conflict: the znodes say something else, and the controller decides again

The writes of a unit take effect together or not at all. A unit with `is_last` follows when all earlier units of its key
are done, and is in conflict if one of them is in conflict.

A write that expects a version follows when all earlier writes of its znode are settled, and after a conflict about this
znode it is in conflict, too, until the topic is read again (`was_read`). It was decided on top of a write that did not
happen, and the version that it expects can be that of another client's write.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from barnabas.controller.zookeeper.znode_writes import ZnodeWrite, check
from barnabas.znodes import paths
from barnabas.zookeeper.client.store import MultiReply, ReadReply, ZnodeContent, ZnodeStore
from barnabas.zookeeper.wire.codes import ANY_VERSION, ErrorCode

#: Half of `jute.maxbuffer`, the largest request that a server takes by default.
GROUP_BYTES_MAX: Final = 500_000
#: Errors of the check that mean another controller. Others refuse the request as a whole, for example its size.
_FENCED: Final = frozenset({ErrorCode.BAD_VERSION, ErrorCode.NO_NODE})
#: The maximum number of multis that wait for their answers.
WINDOW: Final = 100


class Unit(NamedTuple):
    """Writes that belong together. `key` is their subject, a topic."""

    key: str
    writes: tuple[ZnodeWrite, ...]
    is_last: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(write.size_bytes for write in self.writes)


class Conflict(NamedTuple):
    """A unit that was not written, and the content that was found instead; nothing was read for a unit whose
    predecessor failed.
    """

    unit: Unit
    found: Mapping[str, ZnodeContent | None]


#: A callback that gets the conflicts of one decision when all its units are settled.
Settled = Callable[[Sequence[Conflict]], None]


@dataclass(slots=True)
class _Decision:
    """The units of one call of `write` without a result yet."""

    left: int
    settled: Settled
    conflicts: list[Conflict] = field(default_factory=list)


@dataclass(order=True, slots=True)
class _Attempt:
    """Units that are sent as one multi. `number` is that of the first unit: attempts leave in this order."""

    number: int
    units: tuple[Unit, ...] = field(compare=False)
    decision: _Decision = field(compare=False)
    #: Whether the attempt was refused, as part of a group or alone, or its answer was lost.
    is_suspect: bool = field(default=False, compare=False)
    #: The znodes whose versions the writes expect.
    expected: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.expected = frozenset(path for unit in self.units for path in _expected(unit))


class FencedWriter:
    """Writes for one controller epoch. `epoch_version` is the data version of `/controller_epoch` after the claim;
    `on_fenced` is called once, when a check of this version fails.
    """

    def __init__(self, store: ZnodeStore, epoch_version: int, on_fenced: Callable[[], None]) -> None:
        self._store = store
        self._fence = check(paths.CONTROLLER_EPOCH, epoch_version)
        self._on_fenced = on_fenced
        self._queue: list[_Attempt] = []
        self._next_number = 0
        self._in_flight = 0
        #: The number of suspect attempts that are not settled: while there are any, one request is in flight at a time.
        self._suspects = 0
        #: The znodes whose versions the attempts in flight expect.
        self._awaited: set[str] = set()
        #: The znodes of conflicts whose topics have not been read again, by the key of the unit.
        self._stale: dict[str, set[str]] = {}
        self._is_connected = True
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def write(self, units: Iterable[Unit], settled: Settled) -> None:
        """Writes the units, in their order. Does nothing after the fence or `close`."""
        if self._is_closed:
            return
        groups = list(grouped(units))
        if not groups:
            settled(())
            return
        decision = _Decision(sum(map(len, groups)), settled)
        for group in groups:
            heapq.heappush(self._queue, _Attempt(self._next_number, group, decision))
            self._next_number += len(group)
        self._send()

    def close(self) -> None:
        """Ends the writer: queued writes are never sent, and later answers have no effect."""
        self._is_closed = True
        self._queue.clear()

    def was_read(self, key: str) -> None:
        """Ends the conflicts about this key: later writes are decided on what its znodes contain."""
        self._stale.pop(key, None)

    def suspend(self) -> None:
        """Stops sending: the connection to ZooKeeper is lost, but possibly not the session."""
        self._is_connected = False

    def resume(self) -> None:
        """Continues after the session is connected again: lost attempts are sent again, in the same order."""
        self._is_connected = True
        self._send()

    def _send(self) -> None:
        while self._queue and self._may_send(self._queue[0]):
            attempt = heapq.heappop(self._queue)
            if self._is_refused(attempt):
                self._refuse(attempt)
                continue
            self._in_flight += 1
            self._awaited |= attempt.expected
            parts = [self._fence, *(write.part() for unit in attempt.units for write in unit.writes)]
            self._store.multi(parts, partial(self._on_reply, attempt))

    def _may_send(self, attempt: _Attempt) -> bool:
        if self._is_closed or not self._is_connected:
            return False
        alone = self._suspects > 0 or attempt.units[0].is_last
        return self._in_flight < (1 if alone else WINDOW) and self._awaited.isdisjoint(attempt.expected)

    def _is_refused(self, attempt: _Attempt) -> bool:
        """Returns whether an earlier conflict makes a unit one, too."""
        first = attempt.units[0]
        if first.is_last and any(conflict.unit.key == first.key for conflict in attempt.decision.conflicts):
            return True
        return bool(self._stale) and any(
            path in self._stale.get(unit.key, ()) for unit in attempt.units for path in _expected(unit)
        )

    def _refuse(self, attempt: _Attempt) -> None:
        """Settles an attempt with a refused unit, or divides it if it has several units."""
        if len(attempt.units) > 1:
            self._split(attempt)
        else:
            self._settle(attempt, [Conflict(attempt.units[0], {})])

    def _on_reply(self, attempt: _Attempt, reply: MultiReply) -> None:
        if self._is_closed:
            return
        self._in_flight -= 1
        self._awaited -= attempt.expected
        refused = reply.refused_part
        if reply.is_lost:
            self._lost(attempt)
        elif refused is None:
            self._settle(attempt, ())
        elif refused == 0 and reply.error_of(0) in _FENCED:
            self.close()
            self._on_fenced()
            return
        elif len(attempt.units) > 1:
            self._split(attempt)
        else:
            self._suspect(attempt)
            self._read_back(attempt)
        self._send()

    def _lost(self, attempt: _Attempt) -> None:
        """Keeps the attempt, so that it is sent again on the next connection."""
        self._is_connected = False
        self._suspect(attempt)
        heapq.heappush(self._queue, attempt)

    def _split(self, attempt: _Attempt) -> None:
        self._suspects -= attempt.is_suspect
        for place, unit in enumerate(attempt.units):
            single = _Attempt(attempt.number + place, (unit,), attempt.decision)
            self._suspect(single)
            heapq.heappush(self._queue, single)

    def _suspect(self, attempt: _Attempt) -> None:
        if not attempt.is_suspect:
            attempt.is_suspect = True
            self._suspects += 1

    def _read_back(self, attempt: _Attempt) -> None:
        """Reads the znodes of a unit that was refused alone."""
        self._in_flight += 1
        found: dict[str, ZnodeContent | None] = {}
        left = [write.path for write in attempt.units[0].writes]

        def read_next(reply: ReadReply | None = None) -> None:
            if self._is_closed:
                return
            if reply is not None and reply.is_lost:
                self._in_flight -= 1
                self._lost(attempt)
                return
            if reply is not None:
                found[left.pop(0)] = reply.znode
            if left:
                self._store.read(left[0], read_next)
                return
            self._in_flight -= 1
            self._judge(attempt, found)
            self._send()

        read_next()

    def _judge(self, attempt: _Attempt, found: Mapping[str, ZnodeContent | None]) -> None:
        unit = attempt.units[0]
        rest = tuple(write for write in unit.writes if not self._is_done(attempt, write, found[write.path]))
        fitting = tuple(write.fitting(found[write.path]) for write in rest)
        if not rest:
            self._settle(attempt, ())
        elif fitting != unit.writes:
            attempt.units = (unit._replace(writes=fitting),)
            heapq.heappush(self._queue, attempt)
        else:
            self._settle(attempt, [Conflict(unit, found)])

    def _is_done(self, attempt: _Attempt, write: ZnodeWrite, found: ZnodeContent | None) -> bool:
        """Returns whether the znode has the content of this write, or of a later one: if both answers were lost, the
        later write is queued again, and cannot have happened without this one. Earlier ones are queued, too, if their
        group was divided: what they wanted says nothing about this write.
        """
        if write.is_done(found):
            return True
        queued = (other for other in self._queue if other.number > attempt.number)
        later = (each for other in queued for unit in other.units for each in unit.writes)
        return any(each.path == write.path and each.is_done(found) for each in later)

    def _settle(self, attempt: _Attempt, conflicts: Sequence[Conflict]) -> None:
        self._suspects -= attempt.is_suspect
        decision = attempt.decision
        decision.left -= len(attempt.units)
        decision.conflicts += conflicts
        for conflict in conflicts:
            self._stale.setdefault(conflict.unit.key, set()).update(_expected(conflict.unit))
        assert decision.left >= 0, "a unit is settled once"
        if decision.left == 0:
            decision.settled(decision.conflicts)


def _expected(unit: Unit) -> Iterator[str]:
    return (write.path for write in unit.writes if write.version != ANY_VERSION)


def grouped(units: Iterable[Unit]) -> Iterator[tuple[Unit, ...]]:
    """Yields consecutive units of up to `GROUP_BYTES_MAX` in total; a larger one, and one with `is_last`, alone."""
    group: list[Unit] = []
    size = 0
    for unit in units:
        if group and (unit.is_last or group[-1].is_last or size + unit.size_bytes > GROUP_BYTES_MAX):
            yield tuple(group)
            group, size = [], 0
        group.append(unit)
        size += unit.size_bytes
    if group:
        yield tuple(group)
