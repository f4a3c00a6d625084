"""The journal as a command reads it: from a time on, and further back only if that does not answer the question; with
the events that wait at the brokers, because the journal cannot be written while a fault hits one of its replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from barnabas.cli import clients
from barnabas.cli.contexts import choice
from barnabas.cli.journal_consumer import ConsumerReading
from barnabas.cli.options import key_values
from barnabas.common.bulk_events import Choice, is_bulk, unpacked
from barnabas.common.errors import ConfigError
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.connections import Unreachable
from barnabas.monitor.journal_reading import JournalReading, Unreadable

Event = dict[str, Any]
T = TypeVar("T")

#: Without a bound, this much of the journal is read first.
FIRST_LOOK_MS: Final = 24 * 3_600_000


class JournalSession:
    """The connections of a command to the brokers, as readers of the journal. The brokers are asked when it is entered,
    which raises Failure if none of them answers.
    """

    def __init__(self, bootstrap: str, properties: Iterable[str] | None) -> None:
        self._runner = asyncio.Runner()
        self.reading = _reading(bootstrap, properties)

    def __enter__(self) -> JournalSession:
        try:
            self.run(self.reading.look())
        except BaseException as error:
            self._close()
            if isinstance(error, Unreachable):
                raise Failure(f"no broker answers: {error}", choice.unreachable_hint()) from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        async def close() -> None:
            self.reading.close()

        self._runner.run(close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def silence(self) -> list[str]:
        """Returns a sentence for each broker that did not answer."""
        return [
            f"Broker {broker} did not answer ({reason}): the events that only it has are missing."
            for broker, reason in sorted(self.reading.silent.items())
        ]


def _reading(bootstrap: str, properties: Iterable[str] | None) -> JournalReading | ConsumerReading:
    settings = key_values(properties or [], "--property")
    try:
        security = Security.from_properties(settings)
    except ConfigError:
        # librdkafka says what is wrong, or has the log-in that is asked for.
        return ConsumerReading(bootstrap, properties)
    except OSError as error:
        raise Failure(str(error)) from error
    addresses = [clients.address(each.strip()) for each in bootstrap.split(",") if each.strip()]
    return JournalReading(addresses, security)


class JournalReader:
    """Reads the journal. `events` are the events that were read, and those that wait at the brokers, each once, in the
    order of the changes; of bulk events, only those of the partitions that `choose` names. `begin_ms` is the time from
    which the journal was read; None if that is its beginning. `problem` says why it could not be read.
    """

    def __init__(self, session: JournalSession, choose: Choice) -> None:
        self._session = session
        self._choose = choose
        self._first: int | None = None
        self._read: list[Event] = []
        self.begin_ms: int | None = None
        self.events: list[Event] = []
        self.problem: str | None = None

    def read_since(self, time_ms: int) -> None:
        """Reads the events since a time, found by the timestamps of their records. An event that was written late comes
        after those of its time, and is read too.
        """
        self._first, self._read = None, []
        self.begin_ms = time_ms
        try:
            # Without an event since then, there is no offset, and nothing to read.
            self._first = self._session.run(self._session.reading.offset_at(time_ms))
            if self._first is not None:
                self._read = self._between(self._first, None)
        except Unreadable as error:
            self.problem = str(error)
        self._order()

    def read_the_rest(self) -> None:
        """Reads the events that are older than those already read."""
        try:
            self._read = [*self._between(None, self._first), *self._read]
            self.begin_ms = None
        except Unreadable as error:
            self.problem = str(error)
        self._order()

    def wait_only(self, time_ms: int) -> None:
        """Takes only what waits at the brokers, where there is no journal."""
        self.begin_ms = time_ms
        self._order()

    def _order(self) -> None:
        since_ms = self.begin_ms or 0
        waiting = [
            shown | {"waiting": True}
            for event in self._session.reading.waiting
            for shown in self._shown(event)
            if event["time_ms"] >= since_ms
        ]
        self.events = distinct([*self._read, *waiting])

    def _between(self, first: int | None, end: int | None) -> list[Event]:
        """Returns the events from an offset on, before `end`."""
        found: list[Event] = []
        reading = self._session.reading
        self._session.run(reading.read(first, end, lambda event: found.extend(self._shown(event))))
        return found

    def _shown(self, event: Event) -> Iterable[Event]:
        return unpacked(event, self._choose) if is_bulk(event) else (event,)

    def check(self) -> None:
        """Raises Failure if the journal could not be read. A command shows first what it knows without it."""
        if self.problem is not None:
            raise Failure(f"{EVENTS_TOPIC} cannot be read: {self.problem}")


def all_events(bootstrap: str, properties: Iterable[str] | None) -> list[Event]:
    """Returns the events of a cluster's journal, without those of single partitions; none if there is no journal, or
    the client must not read it.
    """
    try:
        with JournalSession(bootstrap, properties) as session:
            journal = JournalReader(session, lambda _: frozenset())
            if session.reading.has_journal:
                journal.read_the_rest()
            return journal.events
    except KafkaException:
        return []


def distinct(events: Iterable[Event]) -> list[Event]:
    """Returns each event once, in the order of the changes: a controller that takes over can write some again. Events
    from brokers have no metadata offset and stay after the events that precede them.
    """
    known: dict[str, tuple[int, Event]] = {}
    latest = -1
    for event in events:
        latest = max(latest, event.get("metadata_offset", -1))
        present = known.get(event["id"])
        # The controller that decided knows the cause better than one that found the change in the log.
        if present is None or (present[1].get("inferred") and not event.get("inferred")):
            known[event["id"]] = event.get("metadata_offset", latest), event
    return [event for _, event in sorted(known.values(), key=lambda placed: placed[0])]
