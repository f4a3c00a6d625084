"""The changes that are not yet known to be in the journal, on each node that can become the active controller.

    add -> [ written in part | drawn ... | waiting ... ] -> drawn in order as records -> `written`, or `rewind`

Invariants
- A change leaves when all its events are written, or when the window is full: then `floor` is the metadata offset up
  to which this node no longer has the changes.
- The events of a change are computed only when `draw` takes them for writing, a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from barnabas.journal.events import MetadataChange

T = TypeVar("T")

_CHANGES_MAX: Final = 4_096
#: The largest sum of the changes' weights, which are in changed partitions.
_WEIGHT_MAX: Final = 60_000


class ChangeWindow:
    """The bounded queue of changes. It has two positions: up to the first, the events of the changes were handed to the
    writer, and up to the second, they were written.
    """

    def __init__(self) -> None:
        self._changes: deque[MetadataChange] = deque()
        self._weight = 0
        #: This node has no changes up to this metadata offset: they were made before it started, or were dropped.
        self.floor = -1
        #: `_drawn` is the number of changes whose events were all taken for writing, and `_partly` the number of events
        #: taken of the next change; `_written` events of the first change are already written.
        self._drawn = 0
        self._partly = 0
        self._written = 0
        self._current: Iterator[object] | None = None

    def __bool__(self) -> bool:
        return bool(self._changes)

    def __iter__(self) -> Iterator[MetadataChange]:
        return iter(self._changes)

    def add(self, change: MetadataChange) -> None:
        self._changes.append(change)
        self._weight += change.weight
        while len(self._changes) > _CHANGES_MAX or (self._weight > _WEIGHT_MAX and len(self._changes) > 1):
            self.floor = self._changes[0].offset
            if self._drawn:
                self._drawn -= 1
            else:
                self._current, self._partly = None, 0
            self._written = 0
            self._drop_first()

    def begin_after(self, offset: int) -> None:
        """Empties the window, because its changes do not continue at `offset`."""
        self.rewind()
        self._changes.clear()
        self._weight = self._written = 0
        self.floor = offset

    def forget_before(self, offset: int) -> None:
        """Removes the changes before `offset`, all of whose events are written."""
        self.rewind()
        self._written = 0
        while self._changes and self._changes[0].offset < offset:
            self._drop_first()

    def draw(self, events_of: Callable[[MetadataChange], Iterator[T]], count_max: int) -> list[T]:
        """Takes the next events for writing, at most `count_max`."""
        found: list[T] = []
        while len(found) < count_max and self._drawn < len(self._changes):
            if self._current is None:
                skipped = self._written if self._drawn == 0 else 0
                self._partly = skipped
                self._current = islice(events_of(self._changes[self._drawn]), skipped, None)
            part: list[T] = list(islice(self._current, count_max - len(found)))  # type: ignore[arg-type]
            found += part
            self._partly += len(part)
            if len(found) < count_max:
                self._drawn += 1
                self._current, self._partly = None, 0
        return found

    def written(self) -> None:
        """Removes everything that was taken so far, because it is written."""
        for _ in range(self._drawn):
            self._drop_first()
        self._drawn = 0
        self._written = self._partly

    def rewind(self) -> None:
        """Makes the next `draw` begin again with the events that were taken but not written."""
        self._drawn = self._partly = 0
        self._current = None

    def _drop_first(self) -> None:
        self._weight -= self._changes.popleft().weight
