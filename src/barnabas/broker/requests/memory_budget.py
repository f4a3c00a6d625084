"""The memory that clients can make this process use: one budget for all connections of all listeners.

    held    received bytes of incomplete frames, or of frames not served yet     `ReceiveArea.held_bytes`, exact
    unsent  responses that the clients have not read                             added up; measured when memory is short
    other   data of other parts for clients, such as metadata of group members   queried from them

Below three quarters of the limit nothing is restricted. Above it, memory is short until half of the limit is free:
- connections read in small pieces, and fetch responses become smaller;
- a connection with a large incomplete frame, or with responses that its client does not read, waits. Those that lack
  the fewest bytes continue first, piece by piece; without free memory one continues nevertheless, so that a frame above
  the budget completes eventually;
- a connection that holds memory without progress in either direction for STALLED_MS is closed, the largest first. The
  same holds for one that waits to read once memory has been short for SHORT_MS_MAX: its client can retry, and others
  could not be served.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Clock, Host, Memory, Timer, Timers
from barnabas.protocol.frame_reader import SHARED_AREA_BYTES, ReceiveArea

#: The maximum number of bytes that a connection reads per event while memory is short.
READ_BYTES_WHEN_SHORT: Final = 16 * 1024
#: A frame up to this size can use the whole budget, a larger one three quarters.
SMALL_FRAME_BYTES: Final = 1024 * 1024
#: The minimum size limit of a response, however short memory is.
ANSWER_BYTES_MIN: Final = 64 * 1024
#: A connection that holds less than this is not restricted.
HOLDER_BYTES_MIN: Final = 16 * 1024
STALLED_MS: Final = 5_000
SHORT_MS_MAX: Final = 10_000
TICK_MS: Final = 50
#: The bytes that a connection can read, when it continues, before it may have to wait again.
_PIECE_BYTES: Final = 64 * 1024
#: A connection that was allowed to read its whole frame keeps that permission if it makes progress at least this often.
_GRANT_MS: Final = 1_000
#: The maximum number of connections that one tick closes: closing thousands would block the loop.
_CLOSED_PER_TICK: Final = 100


class Holder(Protocol):
    """The interface of a connection that the budget uses."""

    @property
    def held_bytes(self) -> int:
        """Returns the bytes received and not yet served."""

    @property
    def unsent_bytes(self) -> int:
        """Returns the bytes of responses that the client has not read."""

    @property
    def missing_bytes(self) -> int:
        """Returns the number of bytes that are missing from the incomplete frame of the connection."""

    def wait_for_memory(self) -> None:
        """Stops reading and serving until `on_memory_available`."""

    def on_memory_available(self) -> None: ...

    def abort(self, cause: str) -> None:
        """Aborts the connection for this cause and drops responses that the client has not read."""


class _Progress:
    """The bytes that a holder held when it last made progress."""

    __slots__ = ("held_bytes", "since_ms", "unsent_bytes")

    def __init__(self, held_bytes: int, unsent_bytes: int, since_ms: int) -> None:
        self.held_bytes = held_bytes
        self.unsent_bytes = unsent_bytes
        self.since_ms = since_ms


class MemoryBudget:
    """The memory budget of a process. Connections report the bytes that they hold; the budget determines which of them
    can continue.
    """

    def __init__(self, area: ReceiveArea, clock: Clock, timers: Timers, memory: Memory, limit_bytes: int) -> None:
        """Creates a budget of `limit_bytes` (`queued.max.request.bytes`), or of the size that the host suggests if
        `limit_bytes` is not positive."""
        #: The receive buffer that all connections share.
        self.area = area
        self._clock = clock
        self._timers = timers
        self.limit_bytes = limit_bytes if limit_bytes > 0 else memory.budget_bytes()
        self._others: list[Callable[[], int]] = []
        self._unsent = 0
        self._holders: dict[Holder, _Progress] = {}
        #: Holder -> the time since which it waits.
        self._waiting: dict[Holder, int] = {}
        #: Holders that can read their whole frame.
        self._granted: set[Holder] = set()
        self._timer: Timer | None = None
        self._short_since_ms = 0
        #: The number of connections that the budget closed.
        self.closed_count = 0

    @classmethod
    def of(cls, host: Host, config: BrokerConfig) -> MemoryBudget:
        """Creates the budget of a node, with its receive area."""
        area = ReceiveArea(allocate=host.memory.allocate)
        limit_bytes = config.int_of("queued.max.request.bytes")
        return cls(area, host.clock, host.timers, host.memory, limit_bytes)

    # -- reports of connections

    def count_bytes_of(self, held_bytes: Callable[[], int]) -> None:
        """Includes the memory that another part holds for clients; `held_bytes` is called whenever the usage is
        computed.
        """
        self._others.append(held_bytes)

    @property
    def holders(self) -> Collection[Holder]:
        """Returns the connections that are known to hold bytes, or to wait for memory."""
        return {*self._holders, *self._waiting, *self._granted}

    @property
    def used_bytes(self) -> int:
        """Returns an upper bound of the memory in use; responses count until they are measured."""
        used = self.area.held_bytes + self._unsent
        for other in self._others:
            used += other()
        return used

    @property
    def is_short(self) -> bool:
        return self._timer is not None

    @property
    def is_exhausted(self) -> bool:
        """Returns whether no memory is left for a large response."""
        return self._timer is not None and self.used_bytes >= self.limit_bytes

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def received(self, holder: Holder) -> None:
        """Reports that `holder` keeps bytes of an incomplete or unserved frame."""
        if holder not in self._holders:
            self._holders[holder] = _Progress(holder.held_bytes, 0, self._clock.now_ms())
        if self._timer is None and self.used_bytes <= self._unrestricted_bytes_max:
            return
        self._begin_shortage()
        if holder in self._waiting or holder in self._granted:
            return
        missing = holder.missing_bytes
        if not missing:
            return
        is_small = missing + holder.held_bytes <= SMALL_FRAME_BYTES
        if self.used_bytes + missing > (self.limit_bytes if is_small else self._unrestricted_bytes_max):
            self._wait(holder)

    def sent(self, holder: Holder, count: int) -> None:
        """Reports that responses of `count` more bytes were passed to the host for this client."""
        self._unsent += count
        if holder not in self._holders:
            self._holders[holder] = _Progress(0, holder.unsent_bytes, self._clock.now_ms())
        if self._timer is None:
            if self.used_bytes <= self._unrestricted_bytes_max:
                return
            self._measure_unsent()
            if self.used_bytes <= self._unrestricted_bytes_max:
                return
            self._begin_shortage()
        if holder not in self._waiting and holder.unsent_bytes >= HOLDER_BYTES_MIN:
            self._wait(holder)

    def forget(self, holder: Holder) -> None:
        """Removes a closed connection from the budget."""
        self._holders.pop(holder, None)
        self._waiting.pop(holder, None)
        self._granted.discard(holder)

    def answer_bytes_max(self, wanted: int) -> int:
        """Returns the size limit of a response: `wanted`, or less while memory is short."""
        room = self.limit_bytes - self.used_bytes
        if self._timer is None and wanted <= room - self.limit_bytes // 4:
            return wanted
        if self._timer is None:
            self._measure_unsent()
            room = self.limit_bytes - self.used_bytes
        return min(wanted, max(ANSWER_BYTES_MIN, room // 8))

    # -- while memory is short

    @property
    def _unrestricted_bytes_max(self) -> int:
        return self.limit_bytes // 4 * 3

    def _measure_unsent(self) -> None:
        self._unsent = sum(holder.unsent_bytes for holder in self._holders)

    def _begin_shortage(self) -> None:
        if self._timer is None:
            self._measure_unsent()
            self._short_since_ms = self._clock.now_ms()
            self.area.read_bytes_max = READ_BYTES_WHEN_SHORT
            self._timer = self._timers.call_later(TICK_MS, self._tick)

    def _wait(self, holder: Holder) -> None:
        self._waiting[holder] = self._clock.now_ms()
        holder.wait_for_memory()

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        self._timer = self._timers.call_later(TICK_MS, self._tick)
        self._update_progress(now_ms)
        if self.used_bytes > self.limit_bytes // 2:
            self._close_stalled(now_ms)
        self._resume_waiting(now_ms)
        if not self._waiting and self.used_bytes <= self.limit_bytes // 2:
            self._end_shortage()

    def _end_shortage(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self.area.read_bytes_max = SHARED_AREA_BYTES

    def _update_progress(self, now_ms: int) -> None:
        self._unsent = 0
        for holder, seen in list(self._holders.items()):
            held, unsent = holder.held_bytes, holder.unsent_bytes
            self._unsent += unsent
            if not held and not unsent and holder not in self._waiting:
                del self._holders[holder]
                self._granted.discard(holder)
            elif held != seen.held_bytes or unsent < seen.unsent_bytes or seen.unsent_bytes == 0 < unsent:
                seen.held_bytes, seen.unsent_bytes, seen.since_ms = held, unsent, now_ms
            else:
                seen.unsent_bytes = unsent

    def _close_stalled(self, now_ms: int) -> None:
        """Closes stalled connections, the largest first, until half of the limit is free."""
        is_lasting = now_ms - self._short_since_ms >= SHORT_MS_MAX
        stalled: list[tuple[int, int, Holder]] = []
        for order, (holder, seen) in enumerate(self._holders.items()):
            size = seen.held_bytes + seen.unsent_bytes
            waits_to_read = holder in self._waiting and not seen.unsent_bytes
            if size >= HOLDER_BYTES_MIN and now_ms - seen.since_ms >= STALLED_MS and (is_lasting or not waits_to_read):
                stalled.append((-size, order, holder))
        used = self.used_bytes
        for size, _, holder in sorted(stalled)[:_CLOSED_PER_TICK]:
            if used <= self.limit_bytes // 2:
                break
            used += size
            self.closed_count += 1
            self.forget(holder)
            holder.abort(
                f"memory for requests and responses is short (queued.max.request.bytes={self.limit_bytes}), and it "
                f"holds {-size} bytes without progress"
            )

    def _resume_waiting(self, now_ms: int) -> None:
        """Lets connections continue: those whose responses were read, and as many of those that wait to read as there
        is memory for, one piece each. If there is none, one of them can read its whole frame, because otherwise none
        would ever continue."""
        used = self.used_bytes
        is_half_free = 2 * used <= self.limit_bytes
        readers: list[tuple[int, int, Holder]] = []
        for order, holder in enumerate(list(self._waiting)):
            if holder.unsent_bytes and not is_half_free:
                continue
            if holder.missing_bytes:
                readers.append((holder.missing_bytes, order, holder))
            else:
                self._resume(holder, now_ms)
        room = self._unrestricted_bytes_max - used
        for missing, _, holder in sorted(readers):
            room -= min(missing, _PIECE_BYTES)
            if room < 0:
                break
            self._resume(holder, now_ms)
        if room < 0 and not any(now_ms - self._holders[each].since_ms < _GRANT_MS for each in self._granted):
            first = next((holder for _, _, holder in sorted(readers) if holder in self._waiting), None)
            if first is not None:
                self._granted.add(first)
                self._resume(first, now_ms)

    def _resume(self, holder: Holder, now_ms: int) -> None:
        del self._waiting[holder]
        self._holders[holder].since_ms = now_ms
        holder.on_memory_available()
