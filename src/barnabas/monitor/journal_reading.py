"""A reading of the journal: what is committed, from its leader or an in-sync follower, and what waits at the brokers.

    look      asks all brokers at once: who leads the journal, and which events they have not written yet
    read      the committed events from an offset on, from the first replica that answers (`journal_replicas`)

While a fault hits a replica of the journal, nothing can be committed, and the reports about it wait at the brokers that
noticed it. A broker that does not answer is named with the reason: its own reports are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected
from barnabas.common.types import EVENTS_TOPIC
from barnabas.monitor.broker_connection import Address, BrokerConnection, NoAnswer, Security
from barnabas.monitor.connections import Connections, Unreachable
from barnabas.monitor.journal_replicas import PATIENCE_S, JournalReplicas
from barnabas.monitor.journal_requests import Event, event_of, fetch, fetch_waiting, offset_at, records_in
from barnabas.monitor.look_requests import EARLIEST, metadata_request
from barnabas.protocol.messages.metadata import MetadataResponse

T = TypeVar("T")

#: The rounds over all replicas, each with more patience than the one before.
_ROUNDS: Final = 4
_PAUSE_S: Final = 0.25
#: How long a look waits for a broker that did not answer the look before it.
_AGAIN_S: Final = 0.3
_TIMEOUT_S: Final = 16.0


class Unreadable(Exception):
    """Signals that no replica of the journal can be read. The text has the reasons."""


class _Answer(NamedTuple):
    """The answer of one broker to a look."""

    metadata: MetadataResponse
    waiting: list[Event]


class _Batch(NamedTuple):
    records: Sequence[tuple[int, bytes | None]]
    after: int
    #: Whether the replica has no committed record after these.
    is_last: bool


class _AtReplica(NamedTuple):
    connection: BrokerConnection
    is_leader: bool
    patience_s: float


class JournalReading:
    """The reading. It can be continued for as long as the cluster runs; `close` ends its connections."""

    def __init__(self, bootstrap: Sequence[Address], security: Security) -> None:
        self._bootstrap = tuple(bootstrap)
        self._connections = Connections(bootstrap, security, _TIMEOUT_S)
        self._replicas = JournalReplicas()
        self._addresses: dict[int, Address] = {}
        self._leader = -1
        self._in_sync: Sequence[int] = ()
        self.has_journal = False
        #: The events that the brokers had not written yet when the last look asked them, each once.
        self.waiting: list[Event] = []
        self._silent: set[Address] = set()
        #: The brokers that did not answer the last look, with the reasons.
        self.silent: dict[int, str] = {}

    def close(self) -> None:
        self._connections.close()

    # -- all brokers

    async def look(self) -> None:
        """Asks all brokers. Raises Unreachable if none answers."""
        timeout_s, asked = PATIENCE_S, dict[Address, _Answer | str]()
        while True:
            asked |= await self._ask(self._bootstrap, timeout_s)
            answers = [answer for answer in asked.values() if isinstance(answer, _Answer)]
            if answers:
                break
            self._silent.clear()
            timeout_s *= 2
            if timeout_s > _TIMEOUT_S:
                raise Unreachable("; ".join(f"{host}:{port}: {reason}" for (host, port), reason in asked.items()))
        self._take_brokers(answers)
        asked |= await self._ask([each for each in self._addresses.values() if each not in asked], timeout_s)
        answers = [answer for answer in asked.values() if isinstance(answer, _Answer)]
        self._take_brokers(answers)
        self._take_replicas(answers)
        self.waiting = list({event["id"]: event for answer in answers for event in answer.waiting}.values())
        self.silent = {
            broker: answer
            for broker, address in self._addresses.items()
            if isinstance(answer := asked.get(address), str)
        }
        self._silent = {address for address, answer in asked.items() if isinstance(answer, str)}
        self._connections.forget(self._addresses.values())

    async def _ask(self, addresses: Iterable[Address], timeout_s: float) -> dict[Address, _Answer | str]:
        wanted = tuple(addresses)
        found = await asyncio.gather(*(self._ask_one(address, timeout_s) for address in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _ask_one(self, address: Address, timeout_s: float) -> _Answer | str:
        connection = self._connections.lane(address)
        if address in self._silent:
            timeout_s = min(timeout_s, _AGAIN_S)
        try:
            metadata = await connection.call(metadata_request([EVENTS_TOPIC]), MetadataResponse, timeout_s=timeout_s)
            return _Answer(metadata, await fetch_waiting(connection, timeout_s=timeout_s))
        except NoAnswer as error:
            return str(error)

    def _take_brokers(self, answers: Iterable[_Answer]) -> None:
        named = {broker.node_id: broker for answer in answers for broker in answer.metadata.brokers}
        # A broker that is fenced is not named any more, and its own reports are wanted, too.
        self._addresses |= {broker_id: (broker.host, broker.port) for broker_id, broker in named.items()}

    def _take_replicas(self, answers: Iterable[_Answer]) -> None:
        """Notes the leader of the greatest epoch: a broker that is cut off from the controller names an earlier one."""
        rows = [
            row
            for answer in answers
            for topic in answer.metadata.topics
            if topic.name == EVENTS_TOPIC
            for row in topic.partitions
        ]
        self.has_journal = self.has_journal or bool(rows)
        if rows:
            newest = max(rows, key=lambda row: row.leader_epoch)
            self._leader, self._in_sync = newest.leader_id, newest.isr_nodes

    # -- one replica

    async def offset_at(self, time_ms: int) -> int | None:
        """Returns the offset of the first event that is as young as this; None if there is none. Raises Unreadable."""

        async def ask(at: _AtReplica) -> int:
            found = await offset_at(at.connection, time_ms, timeout_s=at.patience_s)
            if found is None:
                raise NoAnswer("it has no replica that can be read")
            return found

        found = await self._at_any(ask)
        return None if found < 0 else found

    async def read(self, begin: int | None, end: int | None, take: Callable[[Event], None]) -> int:
        """Passes on the committed events from an offset, or the beginning, up to `end`, or the HW. Records that are not
        events, or of a later schema, are skipped. Returns the offset after them. Raises Unreadable.
        """
        position = await self.offset_at(EARLIEST) or 0 if begin is None else begin
        while end is None or position < end:
            batch = await self._at_any(partial(_read, position))
            for offset, value in batch.records:
                event = event_of(value)
                if event is not None and (end is None or offset < end):
                    take(event)
            position = batch.after
            if batch.is_last:
                break
        return position if end is None else min(position, end)

    async def _at_any(self, act: Callable[[_AtReplica], Awaitable[T]]) -> T:
        """Returns the answer of the first replica that gives one. Raises Unreadable."""
        reasons: dict[int, str] = {}
        clock = asyncio.get_running_loop().time
        for number in range(_ROUNDS):
            if number:
                await asyncio.sleep(_PAUSE_S)
                await self._look_again()
            order = [
                broker
                for broker in self._replicas.order(self._leader, self._in_sync, clock())
                if broker in self._addresses
            ]
            for broker in order:
                connection = self._connections.aside(self._addresses[broker])
                at = _AtReplica(connection, broker == self._leader, self._replicas.patience_s(len(order)))
                try:
                    found = await act(at)
                except (NoAnswer, RecordsRejected, DecodeError) as error:
                    reasons[broker] = str(error)
                    self._replicas.failed(broker, clock())
                else:
                    self._replicas.answered(broker)
                    return found
        raise Unreadable("; ".join(f"broker {broker}: {reason}" for broker, reason in sorted(reasons.items())))

    async def _look_again(self) -> None:
        """Asks who leads the journal now."""
        try:
            await self.look()
        except Unreachable as error:
            raise Unreadable(str(error)) from error


async def _read(position: int, at: _AtReplica) -> _Batch:
    row = await fetch(at.connection, position, wait_ms=0, timeout_s=at.patience_s)
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and at.is_leader:
        return _Batch((), position, is_last=True)  # the journal was created again
    if row.error_code:
        raise NoAnswer(f"it refuses: {ErrorCode(row.error_code).name}")
    records, after = records_in(bytes(row.records or b""), position)
    return _Batch(records, after, is_last=after == position or after >= row.high_watermark)
