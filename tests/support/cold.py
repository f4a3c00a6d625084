"""Disks whose page cache is cold, and blocking work that is held until a test releases it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.simulation.disk import MemoryDisk


def always(offset: int, size: int) -> bool:
    return True


def at_times(seed: int, percent: int = 50) -> Callable[[int, int], bool]:
    """Returns a page cache that holds random pages, the same ones for each seed."""
    chance = random.Random(seed)
    return lambda offset, size: chance.randrange(100) < percent


def make_cold(disk: MemoryDisk) -> None:
    disk.is_cold = always


class HeldWork:
    """An implementation of `common.host.Blocking` in two steps: the test decides when the work is done and when its end
    is reported.
    """

    def __init__(self) -> None:
        self._given: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self._ended: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._given) + len(self._ended)

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._given.append((work, done))

    def perform(self) -> None:
        """Does the work that was submitted first."""
        work, done = self._given.pop(0)
        try:
            result = work()
        except Exception as error:
            failure = error
            self._ended.append(lambda: done(None, failure))
        else:
            self._ended.append(lambda: done(result, None))

    def report(self) -> None:
        """Reports the end of the work that was done first."""
        self._ended.pop(0)()

    def finish(self) -> int:
        """Does and reports all submitted work, including work that it leads to. Returns how many ends were reported."""
        count = len(self._ended)
        while self._ended:
            self.report()
        while self._given:
            self.perform()
            self.report()
            count += 1
        return count
