"""Gaps: times whose changes are not known."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.monitor.texts import at


class Gap(NamedTuple):
    """A time whose changes are not known. `end_ms` is None if it lasts to the end of the file."""

    begin_ms: int
    end_ms: int | None
    reason: str

    def covers(self, time_ms: int) -> bool:
        return self.begin_ms < time_ms and (self.end_ms is None or time_ms < self.end_ms)

    def __str__(self) -> str:
        end = "the end" if self.end_ms is None else at(self.end_ms)
        return f"{at(self.begin_ms)} to {end}: {self.reason}"
