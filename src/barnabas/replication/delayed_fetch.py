"""Fetches that wait until their partitions have enough data, or until their deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.replication.follower_waits import FollowerWaits
from barnabas.replication.partition import Isolation, Partition
from barnabas.replication.purgatory import DelayedOperation


class DelayedFetch(DelayedOperation):
    """A fetch that reads again when its partitions have gained `missing_bytes`, when they change otherwise, or at its
    deadline.
    """

    __slots__ = ("_answer", "_follower", "_missing_bytes", "_partitions", "_waits")

    def __init__(
        self, partitions: Sequence[Partition], isolation: Isolation, missing_bytes: int, answer: Callable[[], None]
    ) -> None:
        super().__init__()
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._answer: Callable[[], None] | None = answer
        self._follower = -1
        self._waits: FollowerWaits | None = None
        for partition in partitions:
            partition.watch(self, isolation)

    def end_with(self, follower: int, waits: FollowerWaits) -> None:
        """Makes the fetch end early when the follower is expected to fetch more partitions."""
        self._follower, self._waits = follower, waits
        waits.enter(follower, self)

    def on_progress(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if size_bytes == 0 or self._missing_bytes <= 0:
            self.complete()

    def on_note(self) -> None:
        """Does nothing: the fetch reads all its partitions again in any case."""

    def on_complete(self, expired: bool) -> None:
        answer = self._answer
        self.on_cancel()
        assert answer is not None, "a fetch completes once"
        answer()

    def on_cancel(self) -> None:
        """Deregisters from all partitions, since the queue of deadlines keeps the object itself for a while."""
        for partition in self._partitions:
            partition.unwatch(self)
        self._partitions = ()
        self._answer = None
        if self._waits is not None:
            self._waits.leave(self._follower, self)


class Waitable(Protocol):
    """A fetch session that keeps a reference to its waiting fetch."""

    waiting: DelayedFetch | None


class DelayedSessionFetch(DelayedFetch):
    """A waiting fetch of a session, which watches its partitions between fetches too: the session completes it
    (`Session.on_progress` in `broker/fetching/fetch_sessions.py`).
    """

    __slots__ = ("_session",)

    def __init__(self, session: Waitable, missing_bytes: int, answer: Callable[[], None]) -> None:
        super().__init__((), Isolation.LOG_END, missing_bytes, answer)
        before, session.waiting = session.waiting, self
        self._session: Waitable | None = session
        if before is not None:
            before.complete()  # The earlier fetch gets the error that its session epoch is outdated.

    def on_cancel(self) -> None:
        super().on_cancel()
        session, self._session = self._session, None
        if session is not None and session.waiting is self:
            session.waiting = None
