"""A live tail: the records that are written to a topic from now on, as fast as a page can show them.

A page gets at most 100 records each quarter of a second. What the topic gets beyond that is dropped and counted: a tail
never falls behind by more than some thousand records, and never holds more than one chunk of each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.messages.chunks import FETCH_BY_NAME, Chunks, error_name, fetch_request
from barnabas.console.messages.registry import SchemaRegistry
from barnabas.console.messages.search import SearchQuestion
from barnabas.console.messages.workers import Worker
from barnabas.console.problems import Problem
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.look_requests import CONSUMER, LATEST, offsets_of, offsets_request
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse

#: The shortest time between two answers, and the records of one.
PAUSE_S: Final = 0.25
RECORDS_MAX: Final = 100
#: Records by which a partition can be behind, and those that are then still read.
BEHIND_MAX: Final = 5_000
_KEPT: Final = 100
_PARTITIONS_MAX: Final = 1_000
_WAIT_MS: Final = 200
_CHUNK_S: Final = 5.0
_END: Final = (1 << 63) - 1

Row = FetchResponse.PartitionData


class Tail:
    """A live tail of one topic. `rounds` yields the records that were written. Raises Problem for a topic that does not
    exist, and for an invalid filter.
    """

    def __init__(
        self, cluster: WatchedCluster, worker: Worker, question: SearchQuestion, registry: SchemaRegistry | None
    ) -> None:
        self._cluster = cluster
        self._chunks = Chunks(worker, registry)
        self._question = question
        self._connections: dict[int, BrokerConnection] = {}
        #: The next offset of each partition; None until its end is known.
        self._next: dict[int, int | None] = {}
        self._problems: dict[int, str] = {}
        self._turn = 0
        self.dropped = 0
        self.searched = 0

    async def rounds(self) -> AsyncGenerator[dict[str, Any], None]:
        await self._chunks.begin(self._question.conditions(), timeout_s=_CHUNK_S)
        self._next = dict.fromkeys(self._partitions())
        loop = asyncio.get_running_loop()
        try:
            while True:
                begin_s = loop.time()
                yield await self._round()
                await asyncio.sleep(max(0.0, begin_s + PAUSE_S - loop.time()))
        finally:
            for connection in self._connections.values():
                connection.close()

    def _partitions(self) -> list[int]:
        topic = self._cluster.table.topics.by_name.get(self._question.topic)
        if topic is None or not topic.count:
            raise Problem("not-found", f"there is no topic {self._question.topic}")
        every = [place for place, row in enumerate(topic.rows_by_partition) if row != UNKNOWN]
        wanted = self._question.partitions or tuple(every)
        for place in wanted:
            if place not in every:
                raise Problem("not-found", f"there is no partition {self._question.topic}-{place}")
        return list(dict.fromkeys(wanted))[:_PARTITIONS_MAX]

    async def _round(self) -> dict[str, Any]:
        """Asks every leader once. Returns the records, and the counts from the beginning of the tail."""
        led = self._by_leader()
        self._problems = dict.fromkeys(led.pop(UNKNOWN, ()), "it has no leader")
        answers = await asyncio.gather(*(self._ask(leader, places) for leader, places in led.items()))
        rows = [row for each in answers for row in each]
        # Another partition is first in each round, so that one that is busy leaves room for the others.
        self._turn += 1
        start = self._turn % max(1, len(rows))
        records: list[dict[str, Any]] = []
        for row in [*rows[start:], *rows[:start]]:
            await self._read(row, records)
        return {
            "records": records,
            "dropped": self.dropped,
            "searched": self.searched,
            "problems": [{"partition": place, "text": text} for place, text in sorted(self._problems.items())],
        }

    def _by_leader(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place in self._next:
            row = self._cluster.table.row_of(self._question.topic, place)
            leader = UNKNOWN if row is None else int(self._cluster.table.states.leader[row])
            found.setdefault(leader, []).append(place)
        return found

    async def _ask(self, leader: int, places: list[int]) -> list[Row]:
        """Returns what a leader has of these partitions; nothing, with the reason, if it does not answer."""
        try:
            await self._find_ends(leader, [place for place in places if self._next[place] is None])
            offsets = {place: offset for place in places if (offset := self._next[place]) is not None}
            if not offsets:
                return []
            connection = self._connections.get(leader)
            if connection is None:
                connection = self._connections[leader] = self._cluster.questions.new_connection(leader)
            request = fetch_request(self._question.topic, offsets, wait_ms=_WAIT_MS)
            answer = await connection.call(request, FetchResponse, version_max=FETCH_BY_NAME)
        except NoAnswer as error:
            self._problems |= dict.fromkeys(places, f"its leader, broker {leader}: {error}")
            return []
        return [row for topic in answer.responses for row in topic.partitions if row.partition_index in offsets]

    async def _find_ends(self, leader: int, places: list[int]) -> None:
        if not places:
            return
        keys = [(self._question.topic, place) for place in places]
        request = offsets_request(keys, timestamp=LATEST, replica_id=CONSUMER)
        ends = offsets_of(await self._cluster.questions.of(leader, request, ListOffsetsResponse))
        for (_, place), end in ends.items():
            self._next[place] = end

    async def _read(self, row: Row, records: list[dict[str, Any]]) -> None:
        """Adds the records of one partition that match, as far as there is room."""
        place, begin = row.partition_index, self._next[row.partition_index]
        if begin is None:
            return
        if row.error_code:
            self._problems[place] = error_name(row.error_code)
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._next[place] = None
            return
        behind = row.high_watermark - begin
        if behind > BEHIND_MAX:
            self._next[place] = row.high_watermark - _KEPT
            self.dropped += behind - _KEPT
            return
        room = RECORDS_MAX - len(records)
        if not row.records or room <= 0:
            return
        head = {"type": "chunk", "partition": place, "from": begin, "to": _END, "count_max": room}
        found = await self._chunks.ask(head, bytes(row.records), timeout_s=_CHUNK_S)
        records += found["records"]
        self.searched += found["searched"]
        if found["problem"] is not None:
            self._problems[place] = found["problem"]
            self._next[place] = None
            return
        self._next[place] = max(begin, found["next"])
