"""Fetches that wait until their partitions have more for them, or for their deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.replication.follower_waits import FollowerWaits
from barnabas.replication.partition import Isolation, Partition
from barnabas.replication.purgatory import DelayedOperation


class DelayedFetch(DelayedOperation):
    """Waits until its partitions gained `missing_bytes`, or one changed in another way, or the deadline; then reads."""

    __slots__ = ("_answer", "_follower", "_missing_bytes", "_partitions", "_waits")

    def __init__(
        self, partitions: Sequence[Partition], isolation: Isolation, missing_bytes: int, answer: Callable[[], None]
    ) -> None:
        super().__init__()
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._answer = answer
        self._follower = -1
        self._waits: FollowerWaits | None = None
        for partition in partitions:
            partition.watch(self, isolation)

    def end_with(self, follower: int, waits: FollowerWaits) -> None:
        """End, too, when this follower is about to have more to ask for."""
        self._follower, self._waits = follower, waits
        waits.enter(follower, self)

    def on_progress(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if size_bytes == 0 or self._missing_bytes <= 0:
            self.complete()

    def on_note(self) -> None:
        """It reads all of them again in any case."""

    def on_complete(self, expired: bool) -> None:
        answer = self._answer
        self.on_cancel()
        answer()

    def on_cancel(self) -> None:
        """Its deadline may still hold it for a while, and it holds nothing then."""
        for partition in self._partitions:
            partition.unwatch(self)
        self._partitions = ()
        self._answer = _nothing
        if self._waits is not None:
            self._waits.leave(self._follower, self)


class Waitable(Protocol):
    """A session whose partitions tell who waits (`waiting`)."""

    waiting: DelayedFetch | None


class DelayedSessionFetch(DelayedFetch):
    """As above, of a session, which watches its partitions all the time."""

    __slots__ = ("_session",)

    def __init__(self, session: Waitable, missing_bytes: int, answer: Callable[[], None]) -> None:
        super().__init__((), Isolation.LOG_END, missing_bytes, answer)
        before, session.waiting = session.waiting, self
        self._session: Waitable | None = session
        if before is not None:
            before.complete()  # its answer says that the session went on

    def on_cancel(self) -> None:
        super().on_cancel()
        session, self._session = self._session, None
        if session is not None and session.waiting is self:
            session.waiting = None


def _nothing() -> None:
    return None
