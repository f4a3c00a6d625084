"""Applies a metadata change of thousands of partitions in slices.

A broker that gets a thousand replicas, or the leadership of five thousand partitions of a failed broker, would block
its event loop while it opens and assigns them: fetches of the metadata log, heartbeats and clients would wait, and
other brokers would learn later what was committed. A change of a few partitions is applied immediately.

Invariants
- Images are applied in order, each completely before the next.
- The first image is applied immediately, because the broker must not appear ready before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.common.host import Clock, Timers
from barnabas.metadata.image import MetadataDelta, MetadataImage

#: The limits of a slice: partitions, and time, since opening replicas depends on the disk.
_STEPS_AT_ONCE: Final = 100
_SLICE_MS: Final = 8
_END: Final = object()


class ImageSlices:
    """The queue of changes. `apply` is a generator that performs one step before each `yield`. `on_image` is a
    `metadata.store.Subscriber`.
    """

    def __init__(
        self, timers: Timers, clock: Clock, apply: Callable[[MetadataDelta, MetadataImage], Iterator[None]]
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._apply = apply
        self._waiting: deque[Iterator[None]] = deque()
        self._is_first = True
        self._scheduled = False
        self._running = False

    @property
    def is_behind(self) -> bool:
        """Returns whether a change, or a part of it, waits for its turn."""
        return bool(self._waiting)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.add(self._apply(delta, image))

    def add(self, steps: Iterator[None]) -> None:
        """Performs these steps after the changes that wait. The first image must have been applied."""
        self._waiting.append(steps)
        if not self._scheduled and not self._running:
            self._run_slice()

    def close(self) -> None:
        self._waiting.clear()

    def _run_slice(self) -> None:
        self._scheduled = False
        self._running = True
        left = _STEPS_AT_ONCE
        until_ms = self._clock.now_ms() + _SLICE_MS
        try:
            while self._waiting and (left or self._is_first):
                steps = self._waiting[0]
                if next(steps, _END) is not _END:
                    left = max(left - 1, 0) if self._clock.now_ms() < until_ms else 0
                elif self._waiting:
                    self._waiting.popleft()
                    self._is_first = False
        finally:
            self._running = False
            if self._waiting:
                self._scheduled = True
                self._timers.call_soon(self._run_slice)
