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


class Waiting(NamedTuple):
    """The events that waited at the brokers from a time on, until they are others."""

    since_ms: int
    events: tuple[Event, ...]


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
    waiting: Sequence[Waiting] = ()

    @property
    def begin_ms(self) -> int:
        return min(truth.begin_ms for truth in self.truths)

    @property
    def end_ms(self) -> int:
        return max(truth.end_ms for truth in self.truths)

    def read_by(self, time_ms: int) -> list[Event]:
        """Returns what a question at that time has: the committed events, and those that wait then."""
        waiting = max((each for each in self.waiting if each.since_ms <= time_ms), default=None, key=_since_ms)
        committed = [event for read_ms, event in self.journal if read_ms <= time_ms]
        return committed if waiting is None else [*committed, *waiting.events]

    @property
    def signs_ms(self) -> list[int]:
        """Returns the times since the beginning at which there was something new."""
        known = {event["id"] for event in self.read_by(self.begin_ms - 1)}
        reads = [(read_ms, (event,)) for read_ms, event in self.journal]
        seen = sorted([*reads, *self.waiting], key=lambda entry: entry[0])
        return [
            time_ms
            for time_ms, events in seen
            if time_ms >= self.begin_ms and any(event["id"] not in known for event in events)
        ]

    def asked_ms(self, asking: Asking) -> int:
        """Returns the time of a question. The first sign is the first event that can be read after the beginning."""
        if asking is AFTER_HEALING:
            return self.over_ms
        if asking is AFTER_10_S:
            return min(self.begin_ms + 10_000, self.over_ms)
        return min([self.over_ms, self.begin_ms + 10_000, *self.signs_ms])


def _since_ms(waiting: Waiting) -> int:
    return waiting.since_ms


class Answered(NamedTuple):
    """The truth of a run and the ranked answer to one question about it."""

    kind: str
    seed: int
    truths: tuple[Truth, ...]
    guesses: tuple[Guess, ...]

    @property
    def first(self) -> Guess:
        return self.guesses[0] if self.guesses else Guess(NOTHING, "")
