"""The sweep over the sizes and offsets of one broker's replicas: in chunks, those on screen first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer, Repeated
from barnabas.monitor.columns import UNKNOWN, IntArray
from barnabas.monitor.delta import VolumesSeen
from barnabas.monitor.look_requests import (
    CONSUMER,
    EARLIEST,
    PAGE_MAX,
    Key,
    log_dirs_request,
    offsets_of,
    offsets_request,
    sizes_of,
)
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

_NEVER: Final = float("-inf")


class _Chunk:
    """The requests about some replicas, with their last answers."""

    def __init__(self, keys: list[Key], layout: int) -> None:
        self.keys, self.layout = keys, layout
        self.round = 0
        self.sizes = Repeated(lambda: log_dirs_request(keys), DescribeLogDirsResponse)
        self.ends = Repeated(lambda: offsets_request(keys), ListOffsetsResponse)


class VolumeSweep:
    """The sweep of one broker. `wants_offsets`: also the offsets that consumers see, from the leaders."""

    def __init__(self, table: ClusterTable, broker: int, *, wants_offsets: bool) -> None:
        self._table = table
        self._broker = broker
        self._wants_offsets = wants_offsets
        #: All keys, those of `_rows` in a table of this layout, and those that are left in this round.
        self._all: list[Key] = []
        self._rows: IntArray = np.zeros(0, np.int32)
        self._layout = UNKNOWN
        self._keys: list[Key] = []
        #: Chunks by their first key.
        self._chunks: dict[Key, _Chunk] = {}
        self._begun_s = _NEVER
        #: Complete sweeps.
        self.rounds = 0
        self.chunks = 0

    def is_due(self, now_s: float, interval_s: float) -> bool:
        return bool(self._keys) or now_s - self._begun_s >= interval_s

    async def ask(
        self, connection: BrokerConnection, now_s: float, time_ms: int, focus: Collection[int] = ()
    ) -> tuple[int, VolumesSeen | None]:
        """Asks for the next chunk. Returns how many rows the answers had, and the answers. Raises NoAnswer."""
        if not self._keys:
            self._begun_s = now_s
            self._chunks = {key: each for key, each in self._chunks.items() if each.round >= self.rounds - 1}
            self._keys = self._all_keys(focus)
        chunk, self._keys = sorted(self._keys[:PAGE_MAX]), self._keys[PAGE_MAX:]
        seen = VolumesSeen(time_ms, self._broker)
        try:
            rows = await self._ask_replicas(connection, chunk, seen) if chunk else 0
        except NoAnswer:
            # The answer to the first of two requests is not applied then, so it is news the next time.
            self._chunks.pop(chunk[0], None)
            raise
        led = self._led(chunk) if self._wants_offsets else []
        if led and connection.knows(ListOffsetsRequest):
            for column, timestamp in (("high_watermarks", -1), ("start_offsets", EARLIEST)):
                request = offsets_request(led, timestamp=timestamp, replica_id=CONSUMER)
                setattr(seen, column, offsets_of(await connection.call(request, ListOffsetsResponse)))
                rows += len(led)
        self.chunks += 1
        self.rounds += not self._keys
        return rows, seen if rows else None

    async def _ask_replicas(self, connection: BrokerConnection, chunk: list[Key], seen: VolumesSeen) -> int:
        known = self._chunks.get(chunk[0])
        layout = self._table.layout
        if known is None or known.layout != layout or known.keys != chunk:
            known = self._chunks[chunk[0]] = _Chunk(chunk, layout)
        known.round = self.rounds
        rows = 0
        if connection.knows(DescribeLogDirsRequest):
            sizes = await connection.call_again(known.sizes)
            if sizes is not None:
                seen.sizes, seen.reported_lags = sizes_of(sizes)
            rows += len(chunk)
        if connection.knows(ListOffsetsRequest):
            ends = await connection.call_again(known.ends)
            if ends is not None:
                seen.end_offsets = offsets_of(ends)
            rows += len(chunk)
        return rows

    def _all_keys(self, focus: Collection[int]) -> list[Key]:
        table = self._table
        rows = table.rows
        own = table.in_order(rows[(table.states.replicas[rows] == self._broker).any(axis=1)])
        if focus and len(own) > PAGE_MAX:
            is_first = np.isin(own, np.array(list(focus), np.int32))
            own = np.concatenate([own[is_first], own[~is_first]])
        if table.layout != self._layout or not np.array_equal(own, self._rows):
            self._all, self._rows, self._layout = self._keys_of(own), own, table.layout
        return self._all

    def _keys_of(self, rows: IntArray) -> list[Key]:
        names = {number: topic.name for number, topic in self._table.topics.by_number.items()}
        states = self._table.states
        return [
            (names[topic], partition)
            for topic, partition in zip(states.topic[rows].tolist(), states.partition[rows].tolist(), strict=True)
        ]

    def _led(self, chunk: list[Key]) -> list[Key]:
        leaders = self._table.states.leader
        found = []
        for key in chunk:
            row = self._table.row_of(*key)
            if row is not None and leaders[row] == self._broker:
                found.append(key)
        return found
