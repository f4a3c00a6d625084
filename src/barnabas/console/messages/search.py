"""A search in a topic: which offsets, from which leaders, until enough was found or a limit is reached.

Forward, from an offset or a time, partitions take turns. Backward, from the end, each partition is read in windows that
grow, the newest first. What a silent leader has is reported as missing, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.messages.chunks import FETCH_BY_NAME, Chunks, error_name, fetch_request
from barnabas.console.messages.registry import SchemaRegistry
from barnabas.console.messages.workers import Worker
from barnabas.console.problems import Problem
from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer
from barnabas.monitor.look_requests import CONSUMER, EARLIEST, LATEST, offsets_of, offsets_request
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse

LIMIT_MAX: Final = 1_000
SECONDS_MAX: Final = 30
BYTES_MAX: Final = 256 << 20
#: Text of all records that are found: what an answer holds in memory.
_TEXT_MAX: Final = 64 << 20
_WAIT_MS: Final = 100
#: The first window of a backward search with a filter, and the largest.
_WINDOW: Final = 500
_WINDOW_MAX: Final = 100_000
_SLACK_S: Final = 2.0
STARTS: Final = ("start", "end", "offset", "time", "next", "before")
_BACKWARD: Final = frozenset({"end", "before"})


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A search as the page requests it. `offsets`: where to continue, by partition, if `start` is next or before.
    `value`: the offset or the time at which to begin, if `start` is offset or time.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    start: str = "end"
    value: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    limit: int = 50
    seconds: int = 5
    filter: str = ""
    q: str = ""
    key: str = "auto"
    body: str = "auto"
    text_max: int = 65_536
    #: Fields that are masked, and whether the bytes of the records are wanted as they were written.
    hidden: tuple[str, ...] = ()
    is_raw: bool = False

    @property
    def is_backward(self) -> bool:
        return self.start in _BACKWARD

    @property
    def is_selective(self) -> bool:
        return bool(self.filter or self.q)

    def conditions(self) -> dict[str, Any]:
        """Returns the conditions of the search for a worker."""
        names = ("filter", "q", "key", "body", "text_max", "hidden", "is_raw")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class _Range:
    """The offsets of one partition that are left."""

    partition: int
    leader: int
    begin: int
    end: int

    @property
    def is_read(self) -> bool:
        return self.begin >= self.end


class Search:
    """A search in one topic. `run` returns the answer."""

    def __init__(
        self, cluster: ClusterView, worker: Worker, question: SearchQuestion, registry: SchemaRegistry | None = None
    ) -> None:
        self._cluster = cluster
        self._chunks = Chunks(worker, registry)
        self._question = question
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time()
        self._deadline_s = self._begin_s + question.seconds
        self._connections: dict[int, BrokerConnection] = {}
        self._records: list[dict[str, Any]] = []
        self._problems: list[dict[str, Any]] = []
        self._next: dict[int, int] = {}
        self._ranges: list[_Range] = []
        self._counts = {"records": 0, "bytes": 0, "skipped": 0, "filter_failures": 0}
        self._filter_failure: str | None = None
        self._text_bytes = 0
        self._stopped = "end"
        #: Partitions that are not read any further.
        self._failed: set[int] = set()

    async def run(self) -> dict[str, Any]:
        """Runs the search. Raises Problem for a topic that does not exist, and for an invalid filter."""
        question = self._question
        partitions = self._partitions()
        try:
            await self._chunks.begin(question.conditions(), timeout_s=self._left_s() + _SLACK_S)
            ranges = [each for each in await asyncio.gather(*map(self._range, partitions)) if each is not None]
            self._ranges = ranges
            if question.is_backward:
                await self._backward(ranges)
            else:
                await self._forward(ranges)
        finally:
            for connection in self._connections.values():
                connection.close()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        backward = self._question.is_backward
        self._records.sort(
            key=lambda record: (record["time_ms"], record["partition"], record["offset"]), reverse=backward
        )
        shown = self._records[: self._question.limit]
        if backward:
            # Older records begin before the oldest that is shown of each partition.
            for record in self._records[self._question.limit :]:
                place = record["partition"]
                self._next[place] = max(self._next.get(place, 0), record["offset"] + 1)
        return {
            "records": shown,
            "searched": {
                **self._counts,
                "left": sum(max(0, each.end - each.begin) for each in self._ranges),
                "ms": round((self._loop.time() - self._begin_s) * 1000),
            },
            "is_complete": self._stopped == "end" and not self._problems and len(shown) == len(self._records),
            "stopped": "count" if len(shown) < len(self._records) else self._stopped,
            "next" if not backward else "before": {str(place): offset for place, offset in sorted(self._next.items())},
            "problems": self._problems,
            "filter_failure": self._filter_failure,
        }

    # -- which offsets

    def _partitions(self) -> list[int]:
        topic = self._cluster.table.topics.by_name.get(self._question.topic)
        if topic is None or not topic.count:
            raise Problem("not-found", f"there is no topic {self._question.topic}")
        every = [place for place, row in enumerate(topic.rows_by_partition) if row >= 0]
        wanted = self._question.partitions or tuple(every)
        for place in wanted:
            if place not in every:
                raise Problem("not-found", f"there is no partition {self._question.topic}-{place}")
        return list(dict.fromkeys(wanted))

    async def _range(self, partition: int) -> _Range | None:
        """Returns the offsets of a partition that are to be read; None if they are not known."""
        question = self._question
        row = self._cluster.table.row_of(question.topic, partition)
        leader = -1 if row is None else int(self._cluster.table.states.leader[row])
        try:
            first, end = await self._offset(leader, partition, EARLIEST), await self._offset(leader, partition, LATEST)
            begin = first
            if question.start in ("offset", "next"):
                wanted = question.offsets.get(partition, question.value if question.start == "offset" else first)
                begin = min(max(first, wanted), end)
            elif question.start == "time":
                found = await self._offset(leader, partition, question.value)
                begin = end if found is None else found
            elif question.start == "before":
                end = min(end, max(first, question.offsets.get(partition, end)))
        except NoAnswer as error:
            self._problems.append({"partition": partition, "text": f"its leader, broker {leader}: {error}"})
            return None
        return _Range(partition, leader, begin, end)

    async def _offset(self, leader: int, partition: int, timestamp: int) -> Any:
        """Returns an offset; None for a time after the last record. Raises NoAnswer."""
        request = offsets_request([(self._question.topic, partition)], timestamp=timestamp, replica_id=CONSUMER)
        answer = await self._cluster.questions.of(leader, request, ListOffsetsResponse)
        row = next((row for topic in answer.topics for row in topic.partitions), None)
        if row is None or row.error_code:
            raise NoAnswer(f"it refused ({error_name(row.error_code if row else 0)})")
        found = offsets_of(answer).get((self._question.topic, partition))
        if found is None and timestamp < 0:
            raise NoAnswer("it did not say where the log begins and ends")
        return found

    # -- reading

    async def _forward(self, ranges: list[_Range]) -> None:
        question = self._question
        turn = max(1, -(-question.limit // max(1, len(ranges))))
        for each in ranges:
            self._next[each.partition] = each.begin
        left = [each for each in ranges if not each.is_read]
        while left and not self._is_over():
            each = left.pop(0)
            count_max = min(turn, question.limit - len(self._records))
            if await self._read(each, count_max):
                left.append(each)
            self._next[each.partition] = each.begin
        if left and self._stopped == "end":
            self._stopped = "count"

    async def _backward(self, ranges: list[_Range]) -> None:
        question = self._question
        window = _WINDOW if question.is_selective else question.limit
        found = {each.partition: 0 for each in ranges}
        for each in ranges:
            self._next[each.partition] = each.end
        left = [each for each in ranges if not each.is_read]
        while left and not self._is_over(counts=False):
            each = left.pop(0)
            part = _Range(each.partition, each.leader, max(each.begin, each.end - window), each.end)
            begin = part.begin
            before = len(self._records)
            while not part.is_read and not self._is_over(counts=False):
                if not await self._read(part, window):
                    break
            found[each.partition] += len(self._records) - before
            if not part.is_read and (self._stopped != "end" or each.partition in self._failed):
                continue
            each.end = self._next[each.partition] = begin
            if not each.is_read and found[each.partition] < question.limit:
                left.append(each)
            elif not each.is_read:
                self._stopped = "count" if self._stopped == "end" else self._stopped
            window = min(_WINDOW_MAX, 2 * window)

    def _is_over(self, *, counts: bool = True) -> bool:
        if counts and len(self._records) >= self._question.limit:
            self._stopped = "count"
        elif self._left_s() <= 0:
            self._stopped = "time"
        elif self._counts["bytes"] >= BYTES_MAX or self._text_bytes >= _TEXT_MAX:
            self._stopped = "bytes"
        else:
            return False
        return True

    def _left_s(self) -> float:
        return self._deadline_s - self._loop.time()

    async def _read(self, part: _Range, count_max: int) -> bool:
        """Reads once. Returns whether the partition has more in its range."""
        try:
            data = await self._fetched(part)
        except NoAnswer as error:
            self._fail(part.partition, f"broker {part.leader}: {error}")
            return False
        if not data:
            part.begin = part.end  # Behind the last stable offset, or the rest was compacted away.
            return False
        head = {
            "type": "chunk",
            "partition": part.partition,
            "from": part.begin,
            "to": part.end,
            "count_max": count_max,
        }
        found = await self._chunks.ask(head, data, timeout_s=max(0.0, self._left_s()) + _SLACK_S)
        self._counts["records"] += found["searched"]
        self._counts["skipped"] += found["skipped"]
        self._counts["bytes"] += len(data)
        self._counts["filter_failures"] = found["filter_failures"]
        self._filter_failure = found["filter_failure"]
        self._records += found["records"]
        self._text_bytes += found["text"]
        if found["problem"] is not None:
            self._fail(part.partition, f"offset {found['next']}: {found['problem']}")
            return False
        if found["next"] <= part.begin and not found["records"]:
            part.begin = part.end
        part.begin = max(part.begin, found["next"])
        return not part.is_read

    def _fail(self, partition: int, text: str) -> None:
        self._failed.add(partition)
        self._problems.append({"partition": partition, "text": text})

    async def _fetched(self, part: _Range) -> bytes:
        """Returns batches from the beginning of a range. Raises NoAnswer."""
        connection = self._connections.get(part.leader)
        if connection is None:
            connection = self._connections[part.leader] = self._cluster.questions.new_connection(part.leader)
        request = fetch_request(self._question.topic, {part.partition: part.begin}, wait_ms=_WAIT_MS)
        answer = await connection.call(request, FetchResponse, version_max=FETCH_BY_NAME)
        row = next((row for each in answer.responses for row in each.partitions), None)
        if row is None or row.error_code:
            raise NoAnswer(f"it refused ({error_name(row.error_code if row else answer.error_code)})")
        return bytes(row.records or b"")
