"""Work of an active controller on thousands of partitions, in slices: everything else is served in between.

A job is a generator; each step between two `yield` handles up to `PARTITIONS_AT_ONCE` partitions, and is one turn of
the loop. A step sees the image as it is then, so the decisions of a job do not depend on what happened before the step.
The jobs take turns, so that none waits for another one (G44). No step begins while `UNWRITTEN_MAX` decisions of jobs
wait for ZooKeeper: their commits would be one long turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from barnabas.common.host import Timers

#: The number of partitions that take about 10 ms.
PARTITIONS_AT_ONCE: Final = 100
UNWRITTEN_MAX: Final = 4

T = TypeVar("T")
K = TypeVar("K")
Job = Iterator[None]
_END: Final = object()


class Slices:
    """Runs the jobs of one controller epoch in slices, in turns."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._jobs: deque[Job] = deque()
        self._unwritten = 0
        self._is_scheduled = False
        self._is_closed = False

    def begin(self, job: Job) -> None:
        """Runs the first step now, and the others in later turns: a job of one step ends before this returns."""
        if not self._is_closed and next(job, _END) is not _END:
            self._jobs.append(job)
            self._schedule()

    def decided(self) -> None:
        """Records that a job proposed a decision; a call of `written` follows."""
        self._unwritten += 1

    def written(self) -> None:
        """Records that ZooKeeper has acknowledged, or refused, a decision of a job."""
        self._unwritten -= 1
        self._schedule()

    def close(self) -> None:
        """Ends all jobs."""
        self._is_closed = True
        self._jobs.clear()

    def _schedule(self) -> None:
        if self._jobs and not self._is_scheduled and self._unwritten < UNWRITTEN_MAX:
            self._is_scheduled = True
            self._timers.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if self._jobs:
            job = self._jobs.popleft()
            if next(job, _END) is not _END and not self._is_closed:
                self._jobs.append(job)
            self._schedule()


def portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yields consecutive items for one step each. If there are no items, yields one empty sequence."""
    for begin in range(0, max(len(items), 1), PARTITIONS_AT_ONCE):
        yield items[begin : begin + PARTITIONS_AT_ONCE]


def portions_by_topic(topics: Iterable[tuple[K, Sequence[T]]]) -> Iterator[list[tuple[K, Sequence[T]]]]:
    """Yields (topic, its rows) for one step each, up to PARTITIONS_AT_ONCE rows together, so that a topic can be in
    several portions. If there are no topics, yields one empty list.
    """
    found: list[tuple[K, Sequence[T]]] = []
    left = PARTITIONS_AT_ONCE
    for topic, rows in topics:
        begin = 0
        while not begin or begin < len(rows):
            if not left:
                yield found
                found, left = [], PARTITIONS_AT_ONCE
            taken = rows[begin : begin + left]
            found.append((topic, taken))
            left -= len(taken)
            begin += max(len(taken), 1)
    yield found
