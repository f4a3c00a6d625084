"""The coverage of many runs: how often each rare event happened, and in how many of the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple


class Reached(NamedTuple):
    """The number of times that an event happened in all runs, and the number of runs in which it did."""

    name: str
    times: int
    runs: int


class EventCoverage:
    """The events of the runs so far."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()
        self._pairs: set[tuple[str, str]] = set()

    def add(self, counts: Mapping[str, int]) -> int:
        """Adds a run. Returns how many combinations are new: pairs of events that happened in no earlier run
        together.
        """
        happened = sorted(name for name, times in counts.items() if times)
        self._times.update(counts)
        self._runs.update(dict.fromkeys(counts, 0))
        self._runs.update(happened)
        before = len(self._pairs)
        self._pairs.update(combinations(happened, 2))
        return len(self._pairs) - before

    @property
    def reached(self) -> int:
        """The number of events that happened."""
        return sum(1 for times in self._times.values() if times)

    def runs_with(self, name: str) -> int:
        """Returns in how many runs the event happened."""
        return self._runs[name]

    def rows(self) -> list[Reached]:
        """Returns all events, those that happened in the fewest runs first."""
        rows = [Reached(name, times, self._runs[name]) for name, times in self._times.items()]
        return sorted(rows, key=lambda row: (row.runs, row.times, row.name))
