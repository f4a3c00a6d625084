"""The journal through librdkafka, for log-ins that only it has (GSSAPI, OAUTHBEARER): from the leader, and without what
waits at the brokers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli import clients
from barnabas.common.types import EVENTS_TOPIC
from barnabas.monitor.journal_reading import Unreadable
from barnabas.monitor.journal_requests import Event, event_of

_BATCH: Final = 1_000


class ConsumerReading:
    """A reading with the methods of `JournalReading` that a command uses."""

    def __init__(self, bootstrap: str, properties: Iterable[str] | None) -> None:
        settings = {
            "group.id": f"barnabas-explain-{os.getpid()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
        }
        self._client: Consumer = clients.consumer(bootstrap, properties, settings)
        self.has_journal = False
        self.waiting: list[Event] = []
        self.silent: dict[int, str] = {}

    def close(self) -> None:
        self._client.close()

    async def look(self) -> None:
        """Asks whether there is a journal. Raises KafkaException."""
        self.has_journal = clients.has_journal(self._client)

    async def offset_at(self, time_ms: int) -> int | None:
        """Returns the offset of the first event that is as young as this; None if there is none. Raises Unreadable."""
        asked = [TopicPartition(EVENTS_TOPIC, 0, time_ms)]
        try:
            (found,) = self._client.offsets_for_times(asked, timeout=clients.TIMEOUT_S)
        except KafkaException as error:
            raise Unreadable(str(error)) from error
        if found.error is not None:
            raise Unreadable(clients.reason(found.error))
        return found.offset if found.offset >= 0 else None

    async def read(self, begin: int | None, end: int | None, take: Callable[[Event], None]) -> int:
        """Passes on the events from an offset, or the beginning, before `end`. Returns the offset after them. Raises
        Unreadable.
        """
        first = OFFSET_BEGINNING if begin is None else begin
        self._client.assign([TopicPartition(EVENTS_TOPIC, 0, first)])
        quiet_since, position = time.monotonic(), begin or 0
        while True:
            messages = self._client.consume(_BATCH, timeout=0.2)
            for message in messages:
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise Unreadable(clients.reason(error))
                if error is not None or (end is not None and offset is not None and offset >= end):
                    return position
                event = event_of(message.value())
                if event is not None:
                    take(event)
                position = position if offset is None else offset + 1
            if messages:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > clients.TIMEOUT_S:
                raise Unreadable(f"no answer within {clients.TIMEOUT_S:.0f} s")
