"""Feed J, the journal: each change with its cause, by a long poll at the leader of `__cluster_events`, or at an in-sync
follower while the leader does not answer.

Events are applied to the table, and kept for those who match causes with changes. If they show that an event was
missed, the next poll begins immediately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected
from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer
from barnabas.monitor.changes import Event
from barnabas.monitor.connections import Connections
from barnabas.monitor.delta import Source
from barnabas.monitor.journal_events import JournalEvents, is_about_brokers
from barnabas.monitor.journal_replicas import JournalReplicas
from barnabas.monitor.journal_requests import end_offset, event_of, fetch, records_in
from barnabas.monitor.look_feed import LookFeed
from barnabas.monitor.table import ClusterTable

_WAIT_MS: Final = 1_000
_PAUSE_S: Final = 0.25
#: Events that are decoded in one turn of the loop. One in bulk has 200 partitions and takes 0.1 ms.
_RECORDS_PER_TURN: Final = 50
_KEPT: Final = ("id", "kind", "time_ms", "text", "cause", "topic", "topic_id", "partition", "inferred")


class JournalFeed:
    """Reads the journal and applies its events. `on_event` is called after new events were taken."""

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
        self._replicas = JournalReplicas()
        self._offset: int | None = None
        self._events: list[Event] = []
        #: Cleared while the events of one answer are applied, in several turns of the loop.
        self.is_whole = asyncio.Event()
        self.is_whole.set()

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
            in_sync = [broker for broker in self._look.journal_in_sync if broker in self._table.brokers]
            leader = self._look.journal_leader
            leader = leader if leader in self._table.brokers and leader is not None else -1
            order = self._replicas.order(leader, in_sync, asyncio.get_running_loop().time())
            is_read = False
            if order:
                is_read = await self._read_at(order[0], is_leader=order[0] == leader, replicas=len(order))
            self._look.note_exact(Source.JOURNAL, is_read)
            if not is_read:
                await asyncio.sleep(_PAUSE_S)

    async def _read_at(self, broker_id: int, *, is_leader: bool, replicas: int) -> bool:
        """Reads once at this replica. Returns False if it gave no valid answer: the next one is read at another
        replica.
        """
        connection = self._connections.aside(self._table.brokers[broker_id].address)
        limit_s = _WAIT_MS / 1_000 + self._replicas.patience_s(replicas)
        try:
            # The connection can be busy with another request that this broker does not answer.
            async with asyncio.timeout(limit_s):
                data = await self._read(connection, is_leader, limit_s)
            if data is not None:
                # Without the limit: what was read is taken as a whole.
                await self._take(data)
        except (NoAnswer, RecordsRejected, DecodeError, TimeoutError):
            data = None
        if data is not None:
            self._replicas.answered(broker_id)
        else:
            self._replicas.failed(broker_id, asyncio.get_running_loop().time())
        return data is not None

    async def _read(self, connection: BrokerConnection, is_leader: bool, limit_s: float) -> bytes | None:
        """Reads once. Returns the batches from `_offset` on; None if the broker refused. Raises NoAnswer."""
        if self._offset is None:
            self._offset = await end_offset(connection, is_leader=is_leader, timeout_s=limit_s)
            return None if self._offset is None else b""
        row = await fetch(connection, self._offset, wait_ms=_WAIT_MS, timeout_s=limit_s)
        if row.error_code:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and is_leader:
                # The journal was created again, or this process was suspended for too long.
                self._offset = None
                self._look.hurry()
            return None
        return bytes(row.records or b"")

    async def _take(self, data: bytes) -> None:
        """Applies the events of batches. Other work has a turn between their parts: a decision about very many
        partitions takes 0.2 s. Raises RecordsRejected and DecodeError.
        """
        if self._offset is None or not data:
            return
        records, self._offset = records_in(data, self._offset)
        self.is_whole.clear()
        try:
            await self._apply(records)
        finally:
            self.is_whole.set()

    async def _apply(self, records: Sequence[tuple[int, bytes | None]]) -> None:
        thinner = EventThinner()
        events: list[Event] = []
        for first in range(0, len(records), _RECORDS_PER_TURN):
            some = [event_of(value) for _, value in records[first : first + _RECORDS_PER_TURN]]
            events += [thinner.thin(event) for event in some if event is not None]
            await asyncio.sleep(0)
        if not events:
            return
        self._events += events
        if any(is_about_brokers(event) for event in events):
            self._look.ask_brokers()
        for _ in self._applied.steps(events):
            self._on_event()
            await asyncio.sleep(0)
        if self._applied.has_gap:
            self._look.hurry()
        self._on_event()


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
