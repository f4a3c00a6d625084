"""The journal as a command reads it: from a time on, and further back only if that does not answer the question."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli import clients
from barnabas.common.bulk_events import Choice, is_bulk, unpacked
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure

Event = dict[str, Any]

_BATCH: Final = 1_000
#: Without a bound, this much of the journal is read first.
FIRST_LOOK_MS: Final = 24 * 3_600_000


def settings() -> dict[str, object]:
    """Returns the configuration of a consumer of the journal."""
    return {
        "group.id": f"barnabas-explain-{os.getpid()}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }


class JournalReader:
    """Reads the journal. `events` are the events that were read, each event once, in the order of the changes; of bulk
    events, only those of the partitions that `choose` names. `begin_ms` is the time from which the journal was read;
    None if that is its beginning.
    """

    def __init__(self, client: Consumer, choose: Choice) -> None:
        self._client = client
        self._choose = choose
        self._first: int | None = None
        self._read: list[Event] = []
        self.begin_ms: int | None = None
        self.events: list[Event] = []

    def read_since(self, time_ms: int) -> None:
        """Reads the events since a time, found by the timestamps of their records. An event that was written late comes
        after those of its time, and is read too.
        """
        (found,) = self._client.offsets_for_times([TopicPartition(EVENTS_TOPIC, 0, time_ms)], timeout=clients.TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        # Without an event since then, there is no offset, and nothing to read.
        self._first = found.offset if found.offset >= 0 else None
        self._read = [] if self._first is None else list(self._between(self._first, None))
        self.begin_ms = time_ms
        self.events = distinct(self._read)

    def read_the_rest(self) -> None:
        """Reads the events that are older than those already read."""
        self._read = [*self._between(OFFSET_BEGINNING, self._first), *self._read]
        self.begin_ms = None
        self.events = distinct(self._read)

    def _between(self, first: int, end: int | None) -> Iterator[Event]:
        """Yields the events from an offset on, before `end`. Records that are not events, or of a later schema, are
        skipped.
        """
        self._client.assign([TopicPartition(EVENTS_TOPIC, 0, first)])
        quiet_since = time.monotonic()
        while True:
            messages = self._client.consume(_BATCH, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                offset = message.offset()
                if error is not None or (end is not None and offset is not None and offset >= end):
                    return
                event = parsed(message.value())
                if event is not None:
                    yield from unpacked(event, self._choose) if is_bulk(event) else (event,)
            if messages:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > clients.TIMEOUT_S:
                raise Failure(f"{EVENTS_TOPIC} cannot be read: no answer within {clients.TIMEOUT_S:.0f} s")


def all_events(bootstrap: str, properties: Iterable[str] | None) -> list[Event]:
    """Returns the events of a cluster's journal, without those of single partitions; none if there is no journal, or
    the client must not read it.
    """
    client = clients.consumer(bootstrap, properties, settings())
    journal = JournalReader(client, lambda _: frozenset())
    try:
        if clients.has_journal(client):
            journal.read_the_rest()
    except KafkaException:
        return []
    finally:
        client.close()
    return journal.events


def parsed(value: bytes | str | None) -> Event | None:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"id", "kind", "time_ms", "text"} <= event.keys() else None


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
