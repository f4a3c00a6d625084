"""Feed J, the journal: each change with its cause, by a long poll at the leader of `__cluster_events`.

Events are applied to the table, and kept for those who match causes with changes. If they show that an event was
missed, the next poll begins immediately.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected
from barnabas.common.types import EVENTS_TOPIC
from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer
from barnabas.monitor.changes import Event
from barnabas.monitor.connections import Connections
from barnabas.monitor.delta import Source
from barnabas.monitor.journal_events import JournalEvents
from barnabas.monitor.look_feed import LookFeed
from barnabas.monitor.look_requests import CONSUMER, offsets_of, offsets_request
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.records.batch import decode_batch, iter_headers

_FETCH_BYTES_MAX: Final = 1024 * 1024
_WAIT_MS: Final = 1_000
#: The last version that names topics by name.
_FETCH_BY_NAME: Final = 12
_PAUSE_S: Final = 0.25
_KEPT: Final = ("id", "kind", "time_ms", "text", "cause", "topic", "topic_id", "partition", "inferred")


class JournalFeed:
    """`on_event` is called after new events were taken."""

    def __init__(
        self,
        table: ClusterTable,
        connections: Connections,
        look: LookFeed,
        clock_ms: Callable[[], int],
        *,
        topic: str | None,
        on_event: Callable[[], None],
    ) -> None:
        self._table = table
        self._connections = connections
        self._look = look
        self._on_event = on_event
        self._applied = JournalEvents(table, topic, clock_ms())
        self._offset: int | None = None
        self._events: list[Event] = []

    def taken(self) -> list[Event]:
        """Returns the events since the last call."""
        found, self._events = self._events, []
        return found

    async def run(self) -> None:
        """Follows the journal until it is cancelled."""
        if not self._look.has_journal:
            # A journal that appears while this runs is read from its beginning.
            self._offset = 0
        while True:
            leader = self._look.journal_leader
            broker = None if leader is None else self._table.brokers.get(leader)
            if broker is None:
                self._look.note_exact(Source.JOURNAL, False)
                await asyncio.sleep(_PAUSE_S)
                continue
            connection = self._connections.aside(broker.address)
            try:
                is_read = await self._read(connection)
            except (NoAnswer, RecordsRejected, DecodeError):
                is_read = False
            self._look.note_exact(Source.JOURNAL, is_read)
            if not is_read:
                await asyncio.sleep(_PAUSE_S)

    async def _read(self, connection: BrokerConnection) -> bool:
        """Reads once. Returns False if the broker refused. Raises NoAnswer."""
        if self._offset is None:
            where = offsets_request([(EVENTS_TOPIC, 0)], replica_id=CONSUMER)
            answer = await connection.call(where, ListOffsetsResponse)
            self._offset = offsets_of(answer).get((EVENTS_TOPIC, 0))
            return self._offset is not None
        partition = FetchRequest.FetchPartition(
            partition=0, fetch_offset=self._offset, partition_max_bytes=_FETCH_BYTES_MAX, current_leader_epoch=-1
        )
        topic = FetchRequest.FetchTopic(topic=EVENTS_TOPIC, partitions=[partition])
        request = FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_FETCH_BYTES_MAX, topics=[topic])
        found = await connection.call(request, FetchResponse, version_max=_FETCH_BY_NAME)
        row = next((row for each in found.responses for row in each.partitions), None)
        if row is None or row.error_code:
            if row is not None and row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # The journal was created again, or this process was suspended for too long.
                self._offset = None
                self._look.hurry()
            return False
        events = list(self._decoded(bytes(row.records or b"")))
        if events:
            self._events += events
            self._applied.apply(events)
            if self._applied.has_gap:
                self._look.hurry()
            if self._applied.is_about_brokers:
                self._look.ask_brokers()
            self._on_event()
        return True

    def _decoded(self, data: bytes) -> Iterator[Event]:
        offset = self._offset
        assert offset is not None, "the place is known"
        thinner = EventThinner()
        for position, header in iter_headers(data):
            if header.next_offset <= offset or header.is_control:
                continue
            for record in decode_batch(data, position):
                event = event_of(record.value) if record.offset >= offset else None
                if event is not None:
                    yield thinner.thin(event)
            self._offset = offset = header.next_offset


def event_of(value: bytes | None) -> Event | None:
    """Returns the event of a record; None if the record is not an event, or of a later schema."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"id", "kind", "time_ms", "text"} <= event.keys() else None


class EventThinner:
    """Reduces events of partitions to what a watch needs. A decision about 40,000 partitions has a few texts and
    states, which its events then share.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._states: dict[str, dict[str, Any]] = {}

    def thin(self, event: Event) -> Event:
        if not (isinstance(event.get("before"), dict) and isinstance(event.get("after"), dict) and "topic" in event):
            return event
        found = {key: self._shared(event[key]) for key in _KEPT if key in event}
        return found | {key: self._state(event[key]) for key in ("before", "after")}

    def _shared(self, value: Any) -> Any:
        return self._texts.setdefault(value, value) if isinstance(value, str) else value

    def _state(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._states.setdefault(repr(state), state)
