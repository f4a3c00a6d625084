"""The history of clients, and the check of it: acked records are present, once and in order; reads are true.

sent      value, with its sender; every value is sent once
acked     value -> (topic, partition, offset)
polled    (topic, partition, offset) -> value, in the order in which each consumer read it
found     the whole log of each partition as it is read at the end
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

Place = tuple[str, int]


class Sent(NamedTuple):
    """A record; `session` is one instance of a producer, within which the order is guaranteed."""

    session: str
    number: int
    place: Place
    at_us: int = 0


class TopicIncarnation(NamedTuple):
    """The state of a topic that is deleted and created again: records acked before `deleted_us` were deleted with its
    predecessor; `is_over` is true from the deletion until the next creation.
    """

    deleted_us: int = 0
    is_over: bool = False


class Violation(Exception):
    """A violated property; the text describes which one and where."""


class History:
    """The history that the clients of one run record."""

    def __init__(self, now_us: Callable[[], int] = lambda: 0) -> None:
        self._now_us = now_us
        self.sent: dict[bytes, Sent] = {}
        self.acked: dict[bytes, tuple[Place, int]] = {}
        self.acked_us: dict[bytes, int] = {}
        self.failed: dict[bytes, str] = {}
        #: The records that each consumer got, for each of its assignments.
        self.polled: dict[str, list[tuple[Place, int, bytes]]] = {}

    def on_sent(self, value: bytes, session: str, number: int, place: Place) -> None:
        assert value not in self.sent, "every value is sent once"
        self.sent[value] = Sent(session, number, place, self._now_us())

    def on_acked(self, value: bytes, place: Place, offset: int) -> None:
        self.acked[value] = (place, offset)
        self.acked_us[value] = self._now_us()

    def on_failed(self, value: bytes, error: BaseException) -> None:
        """Notes a failed send; it is unknown whether the record is in the log."""
        self.failed[value] = type(error).__name__

    def on_polled(self, consumer: str, place: Place, offset: int, value: bytes) -> None:
        self.polled.setdefault(consumer, []).append((place, offset, value))


Found = dict[Place, Sequence[tuple[int, bytes]]]


class Leniency(NamedTuple):
    """The exceptions to the guarantees. `lossy` topics can lose records: they had an unclean election, or a power
    failure and no syncs. For topics with a `TopicIncarnation` (deleted and created again), only records sent from
    `settled_us` on must last. Records that are still present must be true, in order and unique.
    """

    lossy: Collection[str] = ()
    incarnations: Mapping[str, TopicIncarnation] = {}
    settled_us: int = 0


def judge(history: History, found: Found, lenient: Leniency = Leniency()) -> list[str]:  # noqa: B008 - immutable
    """Returns all violations, one line each."""
    problems: list[str] = []
    places: dict[bytes, tuple[Place, int]] = {}
    for place, records in found.items():
        problems += _judge_log(history, place, records, places)
    for value, (place, offset) in history.acked.items():
        topic = place[0]
        there = places.get(value)
        incarnation = lenient.incarnations.get(topic)
        if there is not None and incarnation is not None and history.acked_us[value] < incarnation.deleted_us:
            problems.append(f"resurrected: {value.decode()} is at {_at(*there)}, in a topic that was made after it")
        if place not in found or topic in lenient.lossy:
            continue
        if incarnation is not None and history.sent[value].at_us < lenient.settled_us:
            continue
        if there is None:
            problems.append(f"lost: {value.decode()} was acked at {_at(place, offset)} and is not there")
        elif there != (place, offset):
            problems.append(f"moved: {value.decode()} was acked at {_at(place, offset)} and is at {_at(*there)}")
    lasting = {place: log for place, log in found.items() if place[0] not in {*lenient.lossy, *lenient.incarnations}}
    return problems + _judge_polls(history, lasting)


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
