"""The reader of the journal in the simulated cluster of the score: the code of `barnabas explain`, on a machine of its
own, whose requests cross the simulated network.

A question has the events that were committed and read until then, and those that waited at the brokers when it asked
them. What waited at a broker earlier, and was lost with its process, is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas.common.bulk_events import is_bulk, unpacked
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.connections import Unreachable
from barnabas.monitor.journal_reading import JournalReading, Unreadable
from barnabas.simulation.simulated_cluster import Cluster
from explain_truth import Event, Waiting

#: The machine of the reader.
READER: Final = "explain"
_PAUSE_S: Final = 0.5
_PORT: Final = 9092


class SimulatedReader:
    """Asks the brokers and reads the journal, both twice a second, from `run` on."""

    def __init__(self, cluster: Cluster, brokers: list[str], clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._client = cluster.add_client(READER)
        self._reading = JournalReading([(broker, _PORT) for broker in brokers], Security())
        #: (time at which it could be read, event)
        self.journal: list[tuple[int, Event]] = []
        self.waiting: list[Waiting] = []

    def run(self) -> None:
        self._client.run(self._main)

    def clear(self) -> None:
        self.journal.clear()
        del self.waiting[:-1]

    async def _main(self) -> None:
        await asyncio.gather(self._look(), self._read())

    async def _look(self) -> None:
        while True:
            try:
                await self._reading.look()
            except Unreachable:
                found: tuple[Event, ...] = ()
            else:
                found = tuple(each for event in self._reading.waiting for each in _single(event))
            if not self.waiting or self.waiting[-1].events != found:
                self.waiting.append(Waiting(self._clock_ms(), found))
            await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> None:
        position: int | None = None
        while True:
            if self._reading.has_journal:
                with suppress(Unreadable):
                    position = await self._reading.read(position, None, self._take)
            await asyncio.sleep(_PAUSE_S)

    def _take(self, event: Event) -> None:
        self.journal += [(self._clock_ms(), each) for each in _single(event)]


def _single(event: Event) -> tuple[Event, ...]:
    return tuple(unpacked(event)) if is_bulk(event) else (event,)
