"""What clients did and saw, and the judgement on it: acked = present, once, in order; read = true.

sent      value, with who sent it; every value is sent once
acked     value -> (topic, partition, offset)
polled    (topic, partition, offset) -> value, in the order in which each consumer saw it
found     the whole log of each partition as it is read at the end
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

Place = tuple[str, int]


class Sent(NamedTuple):
    """One record: `session` is one life of a producer, within which order holds."""

    session: str
    number: int
    place: Place


class Violation(Exception):
    """A promise was broken; the text says which one and where."""


class History:
    """Written by the clients of one run."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.acked: dict[bytes, tuple[Place, int]] = {}
        self.failed: dict[bytes, str] = {}
        #: For each consumer and each of its assignments, what it was given.
        self.polled: dict[str, list[tuple[Place, int, bytes]]] = {}

    def on_sent(self, value: bytes, session: str, number: int, place: Place) -> None:
        assert value not in self.sent, "every value is sent once"
        self.sent[value] = Sent(session, number, place)

    def on_acked(self, value: bytes, place: Place, offset: int) -> None:
        self.acked[value] = (place, offset)

    def on_failed(self, value: bytes, error: BaseException) -> None:
        """Whether it is in the log is not known."""
        self.failed[value] = type(error).__name__

    def on_polled(self, consumer: str, place: Place, offset: int, value: bytes) -> None:
        self.polled.setdefault(consumer, []).append((place, offset, value))


Found = dict[Place, Sequence[tuple[int, bytes]]]


def judge(history: History, found: Found, lossy: Collection[str] = ()) -> list[str]:
    """All broken promises, each as one line; none when all is well. Of `lossy` topics nothing is promised to last:
    they had a power failure and no syncs. What they still have must be true, in order and once."""
    problems: list[str] = []
    places: dict[bytes, tuple[Place, int]] = {}
    for place, records in found.items():
        problems += _judge_log(history, place, records, places)
    for value, (place, offset) in history.acked.items():
        if place not in found or place[0] in lossy:
            continue
        there = places.get(value)
        if there is None:
            problems.append(f"lost: {value.decode()} was acked at {_at(place, offset)} and is not there")
        elif there != (place, offset):
            problems.append(f"moved: {value.decode()} was acked at {_at(place, offset)} and is at {_at(*there)}")
    problems += _judge_polls(history, {place: log for place, log in found.items() if place[0] not in lossy})
    return problems


def _judge_log(
    history: History, place: Place, records: Sequence[tuple[int, bytes]], places: dict[bytes, tuple[Place, int]]
) -> list[str]:
    problems = []
    last_offset = -1
    last_number: dict[str, tuple[int, bytes]] = {}
    for offset, value in records:
        if offset <= last_offset:
            problems.append(f"offsets go back: {_at(place, offset)} comes after {last_offset}")
        last_offset = offset
        sent = history.sent.get(value)
        if sent is None or sent.place != place:
            problems.append(f"invented: {value!r} at {_at(place, offset)} was never sent there")
            continue
        if value in places:
            problems.append(f"twice: {value.decode()} is at {_at(*places[value])} and at {_at(place, offset)}")
        places[value] = (place, offset)
        before = last_number.get(sent.session)
        if before is not None and before[0] > sent.number and value in history.acked and before[1] in history.acked:
            problems.append(f"out of order: {value.decode()} at {_at(place, offset)} comes after {before[1].decode()}")
        last_number[sent.session] = (sent.number, value)
    return problems


def _judge_polls(history: History, found: Found) -> list[str]:
    problems = []
    truth = {place: dict(records) for place, records in found.items()}
    for consumer, polled in history.polled.items():
        last: dict[Place, int] = {}
        for place, offset, value in polled:
            if place not in truth:
                continue
            if offset <= last.get(place, -1):
                problems.append(f"{consumer} went back: {_at(place, offset)} after {last[place]}")
            last[place] = offset
            if truth[place].get(offset) != value:
                there = truth[place].get(offset)
                problems.append(f"{consumer} read {value!r} at {_at(place, offset)}, where the log has {there!r}")
    return problems


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"
