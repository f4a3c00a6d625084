"""The values that the score of `explain` compares: what was done to a cluster, and what `explain` answers.

A truth is known to the driver alone; an answer comes from the journal alone (`barnabas.cli.incident`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

Event = dict[str, Any]

#: The right answers where nothing happened, and where the fault is of a kind that `explain` cannot know.
NOTHING: Final = "nothing"
UNKNOWN: Final = "unknown"


class Truth(NamedTuple):
    """A fault: its cause as `explain` names it, the part of the cluster, and its times by the wall clock."""

    cause: str
    component: str
    begin_ms: int
    end_ms: int


class Guess(NamedTuple):
    """A cause in an answer."""

    cause: str
    component: str
    is_sure: bool = False


class Asking(NamedTuple):
    """A moment at which the question is asked."""

    name: str
    title: str


AT_ONCE: Final = Asking("at_once", "at the first sign")
AFTER_10_S: Final = Asking("after_10_s", "10 s after the beginning")
AFTER_HEALING: Final = Asking("after_healing", "after the end")
ASKINGS: Final = (AT_ONCE, AFTER_10_S, AFTER_HEALING)


class Episode(NamedTuple):
    """A run: the faults of one cluster, and the events that could be read at each time."""

    kind: str
    seed: int
    truths: tuple[Truth, ...]
    #: The end of the run.
    over_ms: int
    #: (time at which it could be read, event)
    journal: Sequence[tuple[int, Event]]
    #: Time -> metric -> value; a metric is named "what@component".
    series: Sequence[tuple[int, Mapping[str, float]]]

    @property
    def begin_ms(self) -> int:
        return min(truth.begin_ms for truth in self.truths)

    @property
    def end_ms(self) -> int:
        return max(truth.end_ms for truth in self.truths)

    def read_by(self, time_ms: int) -> list[Event]:
        return [event for read_ms, event in self.journal if read_ms <= time_ms]

    def asked_ms(self, asking: Asking) -> int:
        """Returns the time of a question. The first sign is the first event that can be read after the beginning."""
        if asking is AFTER_HEALING:
            return self.over_ms
        if asking is AFTER_10_S:
            return min(self.begin_ms + 10_000, self.over_ms)
        signs = [read_ms for read_ms, _ in self.journal if read_ms >= self.begin_ms]
        return min([self.over_ms, self.begin_ms + 10_000, *signs])


class Answered(NamedTuple):
    """The truth of a run and the ranked answer to one question about it."""

    kind: str
    seed: int
    truths: tuple[Truth, ...]
    guesses: tuple[Guess, ...]

    @property
    def first(self) -> Guess:
        return self.guesses[0] if self.guesses else Guess(NOTHING, "")
