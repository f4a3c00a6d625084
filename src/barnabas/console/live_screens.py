"""The values that each kind of screen gets from its live stream; `live` sends them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barnabas.console.parameters import Parameters
from barnabas.console.problems import Problem
from barnabas.console.reading import timeline_question
from barnabas.console.screens import LiveScreens, to_json
from barnabas.console.views.brokers import broker_state, brokers_view, rows_shown
from barnabas.console.views.overview import overview
from barnabas.console.views.partition import partition_state
from barnabas.console.views.timeline import new_events
from barnabas.console.views.topic import topic_state
from barnabas.monitor.columns import IntArray
from barnabas.monitor.texts import NO_NODE

#: The number of partitions of a topic in a stream; the page fetches the others.
_TOPIC_ROWS: Final = 500
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


class Message(NamedTuple):
    event: str
    data: Any


class Position(NamedTuple):
    """The version of the table that a page has, and its last event; None if it does not say which event."""

    version: int
    event_id: int | None = None


def position_of(text: str, boot: str) -> Position | None:
    """Returns the position in the id of a stream; None if there is no id, or if another process made it."""
    parts = text.split(".")
    is_known = len(parts) in (2, 3) and parts[0] == boot and all(map(_NUMBER.fullmatch, parts[1:]))
    return Position(*map(int, parts[1:])) if is_known else None


class LiveScreen:
    """A screen of one live stream. `version` and `event_id` are the position after the last update that was sent."""

    pause_s: ClassVar[float] = 0.25

    def __init__(self, screens: LiveScreens, parameters: Parameters) -> None:
        self.screens = screens
        self.cluster = screens.cluster
        self.watched = screens.watched
        self.parameters = parameters
        self.version = self.cluster.table.version
        self.event_id = self.cluster.occurrences.last_id
        #: The state that was last sent; None before that.
        self._state: tuple[object, ...] | None = None

    def begin(self, position: Position | None) -> list[Message]:
        """Returns the updates that a page with this position lacks."""
        raise NotImplementedError

    def news(self) -> list[Message]:
        """Returns what changed since the last call."""
        raise NotImplementedError

    def end(self) -> None:
        self.watched.focus(self, None)

    def is_of_volumes(self, state: tuple[object, ...]) -> bool:
        """Whether only sizes and offsets differ between the state that was last sent and this one."""
        if self._state is None or state[1:] != self._state[1:]:
            return False
        change_sets = self.cluster.table.since(self.version)
        return change_sets is not None and not any(each.is_of_states for each in change_sets)

    def note_position(self) -> None:
        self.version = self.cluster.table.version
        self.event_id = self.cluster.occurrences.last_id


class DataScreen(LiveScreen):
    """A screen that is sent as a whole when it changed. Sizes and offsets alone are sent less often."""

    def __init__(self, screens: LiveScreens, parameters: Parameters) -> None:
        super().__init__(screens, parameters)
        self._sent: bytes = b""
        self._sent_ms = 0

    def data(self) -> Any:
        raise NotImplementedError

    def rows(self) -> list[int]:
        """Returns the rows whose sizes and offsets are wanted first."""
        return []

    def begin(self, position: Position | None) -> list[Message]:
        self.watched.focus(self, self.rows())
        if position is not None and self._is_present(position) and self.cluster.is_filled:
            self._state = self.screens.state_key()
            return []
        return self.news()

    def news(self) -> list[Message]:
        state, now_ms = self.screens.state_key(), self.cluster.clock_ms()
        if state == self._state or (self.is_of_volumes(state) and now_ms - self._sent_ms < 1_000):
            return []
        self._state = state
        self.note_position()
        try:
            data = self.data() if self.cluster.is_filled else None
        except Problem as problem:
            data, body = None, to_json(problem.to_json())
            if body == self._sent:
                return []
            self._sent = body
            return [Message("reload", {"reason": problem.text})]
        body = to_json(_lasting(data))
        if body == self._sent:
            return []
        self._sent, self._sent_ms = body, now_ms
        self.watched.focus(self, self.rows())
        return [Message("data", self.cluster.envelope(data))]

    def _is_present(self, position: Position) -> bool:
        is_known = position.event_id in (None, self.cluster.occurrences.last_id)
        return is_known and position.version == self.cluster.table.version


class OverviewScreen(DataScreen):
    def data(self) -> Any:
        return self.screens.once("overview", lambda: overview(self.cluster))


class BrokersScreen(DataScreen):
    def data(self) -> Any:
        return self.screens.once("brokers", lambda: brokers_view(self.cluster))


class BrokerScreen(DataScreen):
    def data(self) -> Any:
        broker_id = self.parameters.number("id")
        return self.screens.once(("broker", broker_id), lambda: broker_state(self.cluster, broker_id))

    def rows(self) -> list[int]:
        return rows_shown(self.cluster, self.parameters.number("id"))


class TopicScreen(DataScreen):
    def data(self) -> Any:
        name = self.parameters.text("name")
        return self.screens.once(
            ("topic", name), lambda: topic_state(self.cluster, self.screens.topics, name, limit=_TOPIC_ROWS)
        )

    def rows(self) -> list[int]:
        topic = self.cluster.table.topics.by_name.get(self.parameters.text("name"))
        return [] if topic is None else topic.rows[:_TOPIC_ROWS].tolist()


class PartitionScreen(DataScreen):
    def data(self) -> Any:
        topic, partition = self.parameters.text("topic"), self.parameters.number("partition")
        return partition_state(self.cluster, topic, partition)

    def rows(self) -> list[int]:
        row = self.cluster.table.row_of(self.parameters.text("topic"), self.parameters.number("partition"))
        return [] if row is None else [row]


class MapScreen(LiveScreen):
    """Sends the cells that differ from what the page has."""

    def __init__(self, screens: LiveScreens, parameters: Parameters) -> None:
        super().__init__(screens, parameters)
        self._layout = -1
        self._states: dict[str, NDArray[Any]] = {}
        #: The controller and the silent brokers that the page knows: they can change when no cell changes any more.
        self._nodes: tuple[int, list[int]] = (NO_NODE, [])

    def begin(self, position: Position | None) -> list[Message]:
        changed = None if position is None else self._changed_since(position.version)
        self._keep()
        if position is None:
            return []
        if changed is None:
            return [Message("reload", {"reason": "the page is too old"})]
        is_needed = len(changed) or self._nodes[1] or self._has_other_controller(position.version)
        return [self._cells(changed)] if is_needed else []

    def news(self) -> list[Message]:
        if self.version == self.cluster.table.version and self._nodes == self._present_nodes():
            return []
        layout, before, nodes = self._layout, self._states, self._nodes
        self._keep()
        if layout != self._layout:
            return [Message("reload", {"reason": "partitions were created, removed or moved"})]
        differs = np.zeros(len(self.screens.map.order().rows), np.bool_)
        for name, column in self._states.items():
            differs |= before[name] != column
        places = np.flatnonzero(differs).astype(np.uint32)
        return [self._cells(places)] if len(places) or nodes != self._nodes else []

    def _present_nodes(self) -> tuple[int, list[int]]:
        return self.cluster.table.controller, [each["broker"] for each in self.cluster.silent()]

    def _keep(self) -> None:
        self.note_position()
        self._nodes = self._present_nodes()
        self._states = self.screens.map.states()
        self._layout = self.screens.map.order().layout

    def _changed_since(self, version: int) -> NDArray[np.uint32] | None:
        """Returns the places on the map that can differ from a version; None if that is not known any more."""
        change_sets = self.cluster.table.since(version)
        if change_sets is None:
            return None
        order = self.screens.map.order()
        rows: list[IntArray] = [np.zeros(0, np.int32)]
        for each in change_sets:
            if len(each.created_rows) or len(each.removed_rows) or each.silent_before != each.silent_after:
                return None
            if (each.before.replicas.shape != each.after.replicas.shape) or (
                each.before.replicas != each.after.replicas
            ).any():
                return None
            rows.append(each.rows)
        places = np.unique(order.places[np.concatenate(rows)])
        return places[places >= 0].astype(np.uint32)

    def _has_other_controller(self, version: int) -> bool:
        return any(each.controller is not None for each in self.cluster.table.since(version) or ())

    def _cells(self, places: NDArray[np.uint32]) -> Message:
        table = self.cluster.table
        shown: dict[str, Any] = {
            "version": table.version,
            "layout": self._layout,
            "count": len(places),
            "positions": _base64(places),
            **{name: _base64(column[places]) for name, column in self._states.items()},
            "silent": self.cluster.silent(),
            "controller": table.controller,
        }
        return Message("cells", shown)


class TimelineScreen(LiveScreen):
    """Sends new events, and an empty list in each minute in which partitions remain under min ISR."""

    def __init__(self, screens: LiveScreens, parameters: Parameters) -> None:
        super().__init__(screens, parameters)
        self._troubled_ms = self.cluster.occurrences.troubled.last_ms

    def begin(self, position: Position | None) -> list[Message]:
        if position is None:
            return []
        if position.event_id is not None:
            self.event_id = min(position.event_id, self.event_id)
        return self.news()

    def news(self) -> list[Message]:
        new = self.cluster.occurrences.after(self.event_id)
        self.note_position()
        shown = list(new_events(new, timeline_question(self.parameters)))
        before, self._troubled_ms = self._troubled_ms, self.cluster.occurrences.troubled.last_ms
        return [Message("events", {"events": shown})] if shown or before != self._troubled_ms else []


class OtherScreen(LiveScreen):
    """A screen whose updates only tell the page to fetch its data again."""

    def __init__(self, screens: LiveScreens, parameters: Parameters) -> None:
        super().__init__(screens, parameters)
        self._sent_ms = 0

    def begin(self, position: Position | None) -> list[Message]:
        self._state = self.screens.state_key()
        if position is None or position.version == self.version:
            return []
        return [Message("stale", {"version": self.version, "volumes": False})]

    def news(self) -> list[Message]:
        state, now_ms = self.screens.state_key(), self.cluster.clock_ms()
        volumes = self.is_of_volumes(state)
        if state == self._state or (volumes and now_ms - self._sent_ms < 2_000):
            return []
        self._state, self._sent_ms = state, now_ms
        self.note_position()
        return [Message("stale", {"version": self.version, "volumes": volumes})]


SCREENS: Final[Mapping[str, Callable[[LiveScreens, Parameters], LiveScreen]]] = {
    "overview": OverviewScreen,
    "map": MapScreen,
    "topic": TopicScreen,
    "partition": PartitionScreen,
    "brokers": BrokersScreen,
    "broker": BrokerScreen,
    "timeline": TimelineScreen,
}


def _lasting(data: Any) -> Any:
    """Returns the data without what changes with each answer of a broker."""
    if isinstance(data, dict):
        return {key: _lasting(value) for key, value in data.items() if key not in ("age_ms", "answered_ms")}
    if isinstance(data, list):
        return [_lasting(each) for each in data]
    return data


def _base64(column: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<")).tobytes()).decode()
