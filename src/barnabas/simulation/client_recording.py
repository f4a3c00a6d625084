"""A recording of what the aiokafka clients of a simulated application sent, received and committed.

`sent`        every call of `AIOKafkaProducer.send`, with its result as far as it is known
`received`    every record that `getone`, `getmany` or an iteration returned
`committed`   every successful call of `AIOKafkaConsumer.commit`; automatic commits are not in it
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from barnabas.simulation.ambient import replaced
from barnabas.simulation.loop import SimulatedLoop
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US


@dataclass(slots=True)
class Sent:
    """A record that a client sent. `offset` is -1 until it is acknowledged; `error` is the failure of the send, after
    which nobody knows whether the record is in the log.
    """

    client: str
    at_ms: int
    topic: str
    key: Any
    value: Any
    partition: int | None
    offset: int = -1
    error: BaseException | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.offset >= 0


@dataclass(slots=True, frozen=True)
class Received:
    """A record that a client received, as its consumer returned it."""

    client: str
    at_ms: int
    group: str | None
    record: Any


@dataclass(slots=True, frozen=True)
class Committed:
    """A commit of a client. `offsets` is its argument, None for the positions of its consumer."""

    client: str
    at_ms: int
    group: str | None
    offsets: Any


@dataclass(slots=True)
class Recording:
    """The recording of one run, in the order of the events."""

    sent: list[Sent] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    #: The machines whose reads are not recorded.
    silent: frozenset[str] = frozenset()


def _place() -> tuple[str, int]:
    """Returns the machine and the time of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop), loop
    return loop.machine, loop.process.now_us // MILLISECOND_US


def _settled(sent: Sent, future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        sent.error = asyncio.CancelledError()
    elif (error := future.exception()) is not None:
        sent.error = error
    else:
        metadata = future.result()
        sent.partition, sent.offset = metadata.partition, metadata.offset


@contextlib.contextmanager
def recorded(recording: Recording) -> Iterator[None]:
    """Records the clients of this process. Records get the world's time, which aiokafka's extension does not know."""
    with contextlib.ExitStack() as stack:
        # Clients without an id get the next number, which is part of their requests.
        stack.enter_context(replaced(AIOKafkaProducer, "_PRODUCER_CLIENT_ID_SEQUENCE", 0))
        stack.enter_context(replaced(AIOKafkaProducer, "send", _recorded_send(recording)))
        for name, method in _recorded_reads(recording).items():
            stack.enter_context(replaced(AIOKafkaConsumer, name, method))
        yield


def _recorded_send(recording: Recording) -> Callable[..., Any]:
    send = AIOKafkaProducer.send

    async def recorded_send(
        producer: Any,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Any:
        client, at_ms = _place()
        if timestamp_ms is None:
            timestamp_ms = EPOCH_WALL_US // MILLISECOND_US + at_ms
        sent = Sent(client, at_ms, topic, key, value, partition)
        recording.sent.append(sent)
        try:
            future = await send(producer, topic, value, key, partition, timestamp_ms, headers)
        except BaseException as error:
            sent.error = error
            raise
        future.add_done_callback(partial(_settled, sent))
        return future

    return recorded_send


def _recorded_reads(recording: Recording) -> dict[str, Callable[..., Any]]:
    getone, getmany, commit = AIOKafkaConsumer.getone, AIOKafkaConsumer.getmany, AIOKafkaConsumer.commit

    def received(consumer: Any, record: Any) -> None:
        client, at_ms = _place()
        if client not in recording.silent:
            recording.received.append(Received(client, at_ms, consumer._group_id, record))

    async def recorded_getone(consumer: Any, *partitions: Any) -> Any:
        record = await getone(consumer, *partitions)
        received(consumer, record)
        return record

    async def recorded_getmany(consumer: Any, *partitions: Any, **options: Any) -> Any:
        found = await getmany(consumer, *partitions, **options)
        for records in found.values():
            for record in records:
                received(consumer, record)
        return found

    async def recorded_commit(consumer: Any, offsets: Any = None) -> Any:
        result = await commit(consumer, offsets)
        recording.committed.append(Committed(*_place(), consumer._group_id, offsets))
        return result

    return {"getone": recorded_getone, "getmany": recorded_getmany, "commit": recorded_commit}
