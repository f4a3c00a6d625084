"""The history of clients, and the check of it: acked records are present, once and in order; reads are true.

sent      value, with its sender; every value is sent once
acked     value -> (topic, partition, offset)
polled    (topic, partition, offset) -> value, in the order in which each consumer read it
found     the whole log of each partition as it is read at the end
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from barnabas.simulation.world import Note

Place = tuple[str, int]
#: An offset of a partition.
Spot = tuple[Place, int]


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
    """A violated property; the text describes which one and where. `at`: the offset that it is about, if it is about
    one.
    """

    def __init__(self, text: str, at: Spot | None = None) -> None:
        super().__init__(text)
        self.at = at


class Problem(NamedTuple):
    """A broken promise. `text` is its kind, a colon, and where; `spots` are the offsets concerned; `notes` is what the
    clients know about it.
    """

    text: str
    spots: tuple[Spot, ...] = ()
    notes: tuple[Note, ...] = ()


class History:
    """The history that the clients of one run record."""

    def __init__(self, now_us: Callable[[], int] = lambda: 0) -> None:
        self._now_us = now_us
        self.sent: dict[bytes, Sent] = {}
        self.acked: dict[bytes, Spot] = {}
        self.acked_us: dict[bytes, int] = {}
        #: The values whose sending failed: when, and with which error.
        self.failed: dict[bytes, tuple[int, str]] = {}
        #: The records that each consumer got, for each of its assignments.
        self.polled: dict[str, list[tuple[Place, int, bytes]]] = {}
        #: The first read of each offset: when, and by which consumer.
        self._first_polled: dict[Spot, tuple[int, str]] = {}

    def on_sent(self, value: bytes, session: str, number: int, place: Place) -> None:
        assert value not in self.sent, "every value is sent once"
        self.sent[value] = Sent(session, number, place, self._now_us())

    def on_acked(self, value: bytes, place: Place, offset: int) -> None:
        self.acked[value] = (place, offset)
        self.acked_us[value] = self._now_us()

    def on_failed(self, value: bytes, error: BaseException) -> None:
        """Records a failed send; it is unknown whether the record is in the log."""
        self.failed[value] = (self._now_us(), type(error).__name__)

    def on_polled(self, consumer: str, place: Place, offset: int, value: bytes) -> None:
        self.polled.setdefault(consumer, []).append((place, offset, value))
        self._first_polled.setdefault((place, offset), (self._now_us(), consumer))

    # -- the course of a record

    def problem(self, text: str, spots: Collection[Spot], values: Collection[bytes] = ()) -> Problem:
        """Returns a problem with these records and offsets."""
        notes = [note for value in dict.fromkeys(values) for note in self._notes_of(value)]
        notes += [note for spot in dict.fromkeys(spots) for note in self._notes_at(spot)]
        return Problem(text, tuple(dict.fromkeys(spots)), tuple(sorted(set(notes), key=lambda note: note.time_us)))

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        """Returns what the clients know of the records that were acknowledged at an offset."""
        return self.problem("", [spot], [value for value, at in self.acked.items() if at == spot]).notes

    def _notes_of(self, value: bytes) -> Iterator[Note]:
        sent, name = self.sent.get(value), text_of(value)
        if sent is None:
            return
        yield Note(sent.at_us, sent.session, f"sends {name} to {sent.place[0]}-{sent.place[1]}")
        if value in self.acked:
            yield Note(self.acked_us[value], sent.session, f"is answered: {name} is at {spot_text(self.acked[value])}")
        if value in self.failed:
            failed_us, error = self.failed[value]
            yield Note(failed_us, sent.session, f"gives {name} up: {error}")

    def _notes_at(self, spot: Spot) -> Iterator[Note]:
        read = self._first_polled.get(spot)
        if read is not None:
            yield Note(read[0], read[1], f"reads {spot_text(spot)}, as the first one")


Found = Mapping[Place, Sequence[tuple[int, bytes]]]


class Leniency(NamedTuple):
    """Exceptions to the guarantees. `lossy` topics can lose records: they had an unclean election, or a power failure
    and no syncs. For topics with a `TopicIncarnation` (deleted and created again), only records sent from `settled_us`
    on must last. Records that are still present must be true, in order and unique. A record that was acknowledged
    `retried_us` after it was sent, or later, may be in the new topic, too: its first request may wait at the broker,
    for instance on a connection that a quota mutes, until after the deletion.
    """

    lossy: Collection[str] = ()
    incarnations: Mapping[str, TopicIncarnation] = {}
    settled_us: int = 0
    retried_us: float = inf


def judge(history: History, found: Found, lenient: Leniency = Leniency()) -> list[Problem]:  # noqa: B008 - immutable
    """Returns all violations."""
    problems: list[Problem] = []
    places: dict[bytes, Spot] = {}
    for place, records in found.items():
        problems += _judge_log(history, place, records, places)
    for value, spot in history.acked.items():
        place, _ = spot
        topic = place[0]
        there = places.get(value)
        incarnation = lenient.incarnations.get(topic)
        acked_us = history.acked_us[value]
        was_retried = acked_us - history.sent[value].at_us >= lenient.retried_us
        if there is not None and incarnation is not None and acked_us < incarnation.deleted_us and not was_retried:
            text = (
                f"resurrected: {text_of(value)} is at {spot_text(there)}, in a topic that was created after it was sent"
            )
            problems.append(history.problem(text, [there], [value]))
        if place not in found or topic in lenient.lossy:
            continue
        if incarnation is not None and history.sent[value].at_us < lenient.settled_us:
            continue
        if there is None:
            text = f"lost: {text_of(value)} was acked at {spot_text(spot)} and is not in the log"
            problems.append(history.problem(text, [spot], [value]))
        elif there != spot:
            text = f"moved: {text_of(value)} was acked at {spot_text(spot)} and is at {spot_text(there)}"
            problems.append(history.problem(text, [spot, there], [value]))
    lasting = {place: log for place, log in found.items() if place[0] not in {*lenient.lossy, *lenient.incarnations}}
    return problems + _judge_polls(history, lasting)


def _judge_log(
    history: History, place: Place, records: Sequence[tuple[int, bytes]], places: dict[bytes, Spot]
) -> list[Problem]:
    problems = []
    last_offset = -1
    last_number: dict[str, tuple[int, bytes]] = {}
    for offset, value in records:
        spot = (place, offset)
        if offset <= last_offset:
            problems.append(
                history.problem(f"offsets go back: {spot_text(spot)} comes after {last_offset}", [spot], [value])
            )
        last_offset = offset
        sent = history.sent.get(value)
        if sent is None or sent.place != place:
            text = f"invented: {text_of(value)} at {spot_text(spot)} was never sent there"
            problems.append(history.problem(text, [spot], [value]))
            continue
        if value in places:
            text = f"twice: {text_of(value)} is at {spot_text(places[value])} and at {spot_text(spot)}"
            problems.append(history.problem(text, [places[value], spot], [value]))
        places[value] = spot
        before = last_number.get(sent.session)
        if before is not None and before[0] > sent.number and value in history.acked and before[1] in history.acked:
            text = f"out of order: {text_of(value)} at {spot_text(spot)} comes after {text_of(before[1])}"
            problems.append(history.problem(text, [places[before[1]], spot], [before[1], value]))
        last_number[sent.session] = (sent.number, value)
    return problems


def _judge_polls(history: History, found: Found) -> list[Problem]:
    problems = []
    truth = {place: dict(records) for place, records in found.items()}
    for consumer, polled in history.polled.items():
        last: dict[Place, int] = {}
        for place, offset, value in polled:
            spot = (place, offset)
            if place not in truth:
                continue
            if offset <= last.get(place, -1):
                text = f"a consumer went back: {consumer} read {spot_text(spot)} after {last[place]}"
                problems.append(history.problem(text, [spot], [value]))
            last[place] = offset
            there = truth[place].get(offset)
            if there != value:
                holds = "nothing" if there is None else text_of(there)
                text = f"a false read: {consumer} read {text_of(value)} at {spot_text(spot)}, where the log has {holds}"
                problems.append(history.problem(text, [spot], [value] if there is None else [value, there]))
    return problems


def spot_text(spot: Spot) -> str:
    """Formats an offset of a partition: orders-0@12."""
    (topic, index), offset = spot
    return f"{topic}-{index}@{offset}"


def text_of(value: bytes) -> str:
    return value.decode(errors="replace")
