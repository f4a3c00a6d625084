"""The replica map: the state of all partitions as compact columns, in the order of their names.

    u32 length of the header, the header as JSON, then the columns, each at a multiple of 8 bytes

A partition is a few bytes: the number of its list of replicas, its severity, the place of its leader, and a bit for
each replica in the ISR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.brokers import all_brokers
from barnabas.monitor.columns import UNKNOWN, IntArray, LongArray, unique_rows, unpacked, without_match
from barnabas.monitor.table import ClusterTable

NO_LEADER: Final = 255
_ALIGN: Final = 8
_NARROW: Final = 8
FILLS: Final = ("size", "lag")


@dataclass(slots=True)
class MapOrder:
    """The places of the rows on the map, as of one layout of the table. `layout` is the same for equal names and lists
    of replicas, also at two moments of a history. `assignments` are the distinct lists of replicas.
    """

    table_layout: int
    layout: int
    rows: IntArray
    #: The place of each row; -1 for a row without a partition.
    places: IntArray
    assignment: NDArray[np.uint16]
    assignments: list[list[int]]
    #: The names and numbers of partitions, in order.
    topics: dict[str, Any]


class MapColumns:
    """The columns of one cluster's map. The order is kept while no partition is created, removed or moved."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._order: MapOrder | None = None
        self._states: tuple[int, dict[str, NDArray[Any]]] | None = None

    def take_order(self, other: MapColumns) -> None:
        """Takes over the order of another moment if that has the same partitions and lists of replicas."""
        table, known, order = self._cluster.table, other._cluster.table, other._order
        if order is None or order.table_layout != known.layout or table.topics is not known.topics:
            return
        columns = ("topic", "partition", "replicas")
        if all(np.array_equal(getattr(table.states, each), getattr(known.states, each)) for each in columns):
            self._order = replace(order, table_layout=table.layout)

    def order(self) -> MapOrder:
        table = self._cluster.table
        if self._order is None or self._order.table_layout != table.layout:
            rows = table.in_order()
            places = np.full(len(table.states), UNKNOWN, np.int32)
            places[rows] = np.arange(len(rows), dtype=np.int32)
            lists, _, numbers, _ = unique_rows(table.states.replicas[rows])
            assignment = numbers.astype(np.uint16)
            assignments = [list(unpacked(each)) for each in lists]
            topics = self._names(rows)
            layout = crc32(table.states.replicas[rows].tobytes(), crc32(orjson.dumps(topics)))
            self._order = MapOrder(table.layout, layout, rows, places, assignment, assignments, topics)
        return self._order

    def body(self, *, known_layout: int | None = None, fill: str | None = None) -> bytes:
        """Returns the whole map. A page that knows this layout gets no names."""
        cluster, table, order = self._cluster, self._cluster.table, self.order()
        min_isr = np.clip(table.states.min_isr[order.rows], 0, 255).astype(np.uint8)
        columns: dict[str, NDArray[Any]] = {"assignment": order.assignment, **self.states(), "min_isr": min_isr}
        if fill == "size":
            columns["size"] = _steps(table.volumes.size[order.rows])
        elif fill == "lag":
            states = table.states
            lags = table.volumes.lags(order.rows, states.leader[order.rows], states.replicas[order.rows])
            columns["lag"] = _steps(lags)
        head = {
            **{key: value for key, value in cluster.envelope(None).items() if key != "data"},
            "layout": order.layout,
            "count": len(order.rows),
            "width": table.states.width,
            "controller": table.controller,
            "brokers": [
                {"broker": each.broker_id, "rack": each.rack, "problem": each.problem} for each in all_brokers(cluster)
            ],
            "assignments": order.assignments,
            "topics": None if known_layout == order.layout else order.topics,
        }
        return packed(head, columns)

    def states(self) -> dict[str, NDArray[Any]]:
        """Returns severity, leader and ISR of all partitions, in the order of the map. They are not to be changed."""
        table = self._cluster.table
        if self._states is None or self._states[0] != table.version:
            self._states = (table.version, states_of(table, self.order().rows))
        return self._states[1]

    def _names(self, rows: IntArray) -> dict[str, Any]:
        table = self._cluster.table
        numbers, counts = np.unique(table.topics.ranks()[table.states.topic[rows]], return_counts=True)
        every = table.topics.names()
        topics = [table.topics.by_name[every[number]] for number in numbers.tolist()]
        holes = {
            topic.name: [place for place, row in enumerate(topic.rows_by_partition) if row != UNKNOWN]
            for topic in topics
            if topic.count != len(topic.rows_by_partition)
        }
        return {"names": [topic.name for topic in topics], "counts": counts.tolist(), "holes": holes}


def states_of(table: ClusterTable, rows: IntArray) -> dict[str, NDArray[Any]]:
    """Returns severity, leader and ISR of these rows, in this order."""
    states = table.states
    by_row = np.zeros(len(states), np.uint8)
    by_row[table.rows] = table.severities()
    replicas, isr = states.replicas[rows], states.isr[rows]
    is_leader = (replicas == states.leader[rows][:, None]) & (replicas != UNKNOWN)
    leader = np.where(is_leader.any(axis=1), is_leader.argmax(axis=1), NO_LEADER).astype(np.uint8)
    in_sync = (replicas != UNKNOWN) & ~without_match(replicas, isr)
    weights = (1 << np.arange(states.width, dtype=np.uint32))[None, :]
    kind = np.uint8 if states.width <= _NARROW else np.uint32
    return {
        "severity": by_row[rows],
        "leader": leader,
        "isr": (in_sync * weights).sum(axis=1).astype(kind),
    }


def packed(head: dict[str, Any], columns: dict[str, NDArray[Any]]) -> bytes:
    """Returns a header and its columns as one body. The positions of the columns in the body depend on the length of
    the header, so the header is written twice.
    """
    described = {
        name: {"type": f"u{8 * column.dtype.itemsize}", "offset": 0, "length": column.size}
        for name, column in columns.items()
    }
    head = head | {"columns": described}
    # Reserves space for the digits of the offsets, which are added to the head below.
    length = _aligned(4 + len(orjson.dumps(head)) + 12 * len(columns)) - 4
    place = 4 + length
    for name, column in columns.items():
        described[name]["offset"] = place
        place = _aligned(place + column.nbytes)
    parts = [length.to_bytes(4, "little"), orjson.dumps(head).ljust(length)]
    for column in columns.values():
        data = np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
        parts.append(data.ljust(_aligned(len(data)), b"\0"))
    return b"".join(parts)


def _aligned(length: int) -> int:
    return -(-length // _ALIGN) * _ALIGN


def _steps(values: LongArray) -> NDArray[np.uint8]:
    """Returns amounts as steps of a quarter of a power of two; 0 is unknown."""
    steps = np.round(4 * np.log2(1 + np.maximum(values, 0).astype(np.float64)))
    found: NDArray[np.uint8] = np.where(values < 0, 0, 1 + np.minimum(254, steps)).astype(np.uint8)
    return found
