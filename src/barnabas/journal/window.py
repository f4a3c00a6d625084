"""Changes that are not yet known to be in the journal, on every node that may become the active controller.

    add -> [ told | being told | waiting ... ] -> drawn in order as records -> `written`, or `rewind` and once more

Invariants
- A change leaves when all its events are written, or when the window is full: then `floor` says up to which metadata
  offset this node cannot tell any more.
- What a change has to tell is worked out only when it is drawn, a few events at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from barnabas.journal.events import Change

T = TypeVar("T")

_CHANGES_MAX: Final = 4_096
#: Partitions touched by all of them.
_WEIGHT_MAX: Final = 60_000


class ChangeWindow:
    def __init__(self) -> None:
        self._changes: deque[Change] = deque()
        self._weight = 0
        #: Up to this metadata offset nothing is known here: what was before this node began, or had to be let go.
        self.floor = -1
        #: Changes of which everything is drawn, events drawn of the one behind them, and events of the first one that
        #: are written already.
        self._drawn = 0
        self._partly = 0
        self._written = 0
        self._current: Iterator[object] | None = None

    def __bool__(self) -> bool:
        return bool(self._changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    def add(self, change: Change) -> None:
        self._changes.append(change)
        self._weight += change.weight
        while len(self._changes) > _CHANGES_MAX or (self._weight > _WEIGHT_MAX and len(self._changes) > 1):
            self.floor = self._changes[0].offset
            if self._drawn:
                self._drawn -= 1
            else:
                self._current, self._partly = None, 0
            self._written = 0
            self._let_go()

    def begin_after(self, offset: int) -> None:
        """What is here does not lead to what comes now."""
        self.rewind()
        self._changes.clear()
        self._weight = self._written = 0
        self.floor = offset

    def forget_before(self, offset: int) -> None:
        """All events of what came before it are written."""
        self.rewind()
        self._written = 0
        while self._changes and self._changes[0].offset < offset:
            self._let_go()

    def draw(self, tell: Callable[[Change], Iterator[T]], count_max: int) -> list[T]:
        """The next events, at most so many."""
        found: list[T] = []
        while len(found) < count_max and self._drawn < len(self._changes):
            if self._current is None:
                skipped = self._written if self._drawn == 0 else 0
                self._partly = skipped
                self._current = islice(tell(self._changes[self._drawn]), skipped, None)
            part: list[T] = list(islice(self._current, count_max - len(found)))  # type: ignore[arg-type]
            found += part
            self._partly += len(part)
            if len(found) < count_max:
                self._drawn += 1
                self._current, self._partly = None, 0
        return found

    def written(self) -> None:
        """Everything drawn so far."""
        for _ in range(self._drawn):
            self._let_go()
        self._drawn = 0
        self._written = self._partly

    def rewind(self) -> None:
        """What was drawn and not written has to be drawn again."""
        self._drawn = self._partly = 0
        self._current = None

    def _let_go(self) -> None:
        self._weight -= self._changes.popleft().weight
