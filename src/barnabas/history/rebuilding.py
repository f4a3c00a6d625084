"""The state after a moment, rebuilt from the last checkpoint up to it and the events after that."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas.history.errors import HistoryError
from barnabas.history.id_columns import IdColumns, event_values
from barnabas.history.schema import COLUMNS
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.texts import NO_NODE

_EVENTS: Final = f"SELECT partition, {', '.join(COLUMNS)} FROM events WHERE id > ? AND id <= ? ORDER BY id"
_WIDTH: Final = len(COLUMNS) + 1


class Nodes(NamedTuple):
    """The brokers and the active controller after one moment."""

    brokers: dict[int, BrokerState]
    controller: int

    @property
    def silent(self) -> frozenset[int]:
        return frozenset(number for number, broker in self.brokers.items() if broker.problem is not None)


class Rebuilt(NamedTuple):
    """The partitions after one moment, as the history file stores them."""

    seq: int
    last_event: int
    columns: IdColumns


def rebuilt(connection: sqlite3.Connection, seq: int, known: Rebuilt | None = None) -> Rebuilt:
    """Returns the partitions after moment `seq`. It continues from `known` if that is nearer than a checkpoint. Raises
    HistoryError.
    """
    (last_event,) = connection.execute("SELECT last_event FROM moments WHERE seq = ?", (seq,)).fetchone()
    row = connection.execute(
        "SELECT seq, last_event FROM checkpoints WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (seq,)
    ).fetchone()
    if row is None:
        raise HistoryError("the file has no checkpoint for this time")
    if known is not None and row[0] <= known.seq <= seq:
        first, columns = known.last_event, IdColumns()
        columns.data = known.columns.data.copy()
    else:
        first = row[1]
        (blob,) = connection.execute("SELECT columns FROM checkpoints WHERE seq = ?", (row[0],)).fetchone()
        columns = IdColumns.unpacked(blob)
    if first < last_event:
        events = event_values(connection.execute(_EVENTS, (first, last_event)).fetchall(), _WIDTH)
        columns.put(events[:, 0], events[:, 1:])
    return Rebuilt(seq, last_event, columns)


def nodes_at(connection: sqlite3.Connection, seq: int) -> Nodes:
    """Returns the brokers and the controller after moment `seq`. Raises HistoryError."""
    row = connection.execute(
        "SELECT seq, nodes FROM checkpoints WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (seq,)
    ).fetchone()
    if row is None:
        raise HistoryError("the file has no checkpoint for this time")
    found = nodes_from_text(row[1])
    rows = connection.execute(
        "SELECT broker, state FROM nodes WHERE seq > ? AND seq <= ? ORDER BY id", (row[0], seq)
    ).fetchall()
    return nodes_after(found, rows)


def nodes_after(nodes: Nodes, rows: Iterable[tuple[int | None, str]]) -> Nodes:
    """Returns the brokers and the controller after changes."""
    brokers, controller = dict(nodes.brokers), nodes.controller
    for broker, text in rows:
        state = json.loads(text)
        if broker is None:
            controller = state
        elif state is None:
            brokers.pop(broker, None)
        else:
            brokers[broker] = broker_state(broker, state)
    return Nodes(brokers, controller)


def broker_text(broker: BrokerState | None) -> str:
    return json.dumps(None if broker is None else [broker.host, broker.port, broker.rack, broker.problem])


def broker_state(broker: int, state: list[Any]) -> BrokerState:
    host, port, rack, problem = state
    return BrokerState(broker, host, port, rack, problem)


def nodes_to_text(nodes: Nodes) -> str:
    shown = {number: json.loads(broker_text(broker)) for number, broker in sorted(nodes.brokers.items())}
    return json.dumps({"controller": nodes.controller, "brokers": shown})


def nodes_from_text(text: str) -> Nodes:
    found = json.loads(text)
    brokers = {int(number): broker_state(int(number), state) for number, state in found["brokers"].items()}
    return Nodes(brokers, found.get("controller", NO_NODE))
