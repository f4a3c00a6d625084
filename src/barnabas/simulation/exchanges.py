"""Requests and responses as they pass the network, frame by frame: what a node received, and how it responded. No state
of the broker is used. A connection is followed on the node's side, and on the side of a client's machine. Answers come
in the order of their requests; an answer that no request expects is a violation.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas.common.types import TopicPartition
from barnabas.simulation.history import Violation
from barnabas.simulation.network import Observer, Socket
from barnabas.simulation.produce_frames import Answered, rows_of
from barnabas.simulation.request_frames import PRODUCE, Request, acks_of
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import Process

_HEAD: Final = struct.Struct(">ihhi")
_LENGTH: Final = struct.Struct(">i")
_ANSWER: Final = struct.Struct(">ii")


class Frames:
    """The frames of one direction of a connection."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        """Returns the frames that these bytes complete."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        size = len(data)
        if size >= 4 and _LENGTH.unpack_from(data)[0] + 4 == size:
            return [data]
        found, at = [], 0
        while size - at >= 4:
            end = at + 4 + _LENGTH.unpack_from(data, at)[0]
            if end > size:
                break
            found.append(data[at:end])
            at = end
        self._rest = data[at:]
        return found


class Exchange:
    """A connection as one of its ends sees it: requests come in at a node's end, and go out at a client's."""

    __slots__ = ("_answers", "_now_us", "_owner", "_requests", "client", "is_of_node", "node", "server", "waiting")

    def __init__(
        self, owner: Exchanges, ends: tuple[str, str], server: Process, now_us: Callable[[], int], *, is_of_node: bool
    ) -> None:
        """`ends` are the names of the client's machine and of the node; `server` is the node's process."""
        client, node = ends
        self.server = server
        self.node = node
        self.client = client
        self.is_of_node = is_of_node
        self.waiting: deque[Request] = deque()
        self._owner = owner
        self._now_us = now_us
        self._requests, self._answers = Frames(), Frames()

    def received(self, data: bytes) -> None:
        try:
            (self._on_requests if self.is_of_node else self._on_answers)(data)
        except Exception as error:
            self._owner.fail(error)

    def sent(self, data: bytes) -> None:
        try:
            (self._on_answers if self.is_of_node else self._on_requests)(data)
        except Exception as error:
            self._owner.fail(error)

    def closed(self) -> None:
        """Forgets unanswered requests: the client sees that the connection is closed."""
        self.waiting.clear()

    def _on_requests(self, data: bytes) -> None:
        for frame in self._requests.take(data):
            _, api_key, version, correlation_id = _HEAD.unpack_from(frame)
            if api_key == PRODUCE and acks_of(version, frame) == 0:
                continue
            request = Request(self._now_us(), api_key, version, correlation_id, frame)
            self.waiting.append(request)
            for listener in self._owner.listeners.get(api_key, ()):
                listener.on_request(self, request)

    def _on_answers(self, data: bytes) -> None:
        for frame in self._answers.take(data):
            _, correlation_id = _ANSWER.unpack_from(frame)
            if not self.waiting or self.waiting[0].correlation_id != correlation_id:
                expected = [each.correlation_id for each in self.waiting]
                raise Violation(
                    f"an answer to no request: {self.node} answers {correlation_id} to {self.client}, which waits for "
                    f"{expected}"
                )
            request = self.waiting.popleft()
            for listener in self._owner.listeners.get(request.api_key, ()):
                listener.on_answer(self, request, frame)


class Listener:
    """A receiver of requests and answers of some APIs."""

    api_keys: tuple[int, ...] = ()

    def on_request(self, exchange: Exchange, request: Request) -> None:
        """Takes a request when it arrives, or, on a client's end, when it leaves."""

    def on_answer(self, exchange: Exchange, request: Request, frame: bytes) -> None:
        """Takes the answer to a request when it leaves, or, on a client's end, when it arrives."""


class Exchanges(Observer):
    """All open connections to nodes of a cluster; one per world."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.listeners: dict[int, list[Listener]] = {}
        #: Violations that were found. A checker raises them later: here they would be raised within the code of a node.
        self.problems: list[Violation] = []
        self._topics: dict[bytes, str] = {}
        #: The last Produce answer, and its rows.
        self._rows: tuple[bytes, list[Answered]] = b"", []
        #: Open connections by their socket.
        self.open: dict[Socket, Exchange] = {}
        cluster.network.add_observer(self)

    def listen(self, listener: Listener) -> None:
        for api_key in listener.api_keys:
            self.listeners.setdefault(api_key, []).append(listener)

    def connected(self, dialled: Socket, accepted: Socket) -> None:
        """Follows a connection if it leads to a node."""
        network, cluster = self._cluster.network, self._cluster
        client, node = network.name_of(dialled.local[0]), network.name_of(accepted.local[0])
        if node in cluster.nodes:
            self._follow(accepted, (client, node), accepted.process, is_of_node=True)
            if client not in cluster.nodes:
                self._follow(dialled, (client, node), accepted.process, is_of_node=False)

    def sent(self, socket: Socket, data: bytes) -> None:
        exchange = self.open.get(socket)
        if exchange is not None:
            exchange.sent(data)

    def received(self, socket: Socket, data: bytes) -> None:
        exchange = self.open.get(socket)
        if exchange is not None:
            exchange.received(data)

    def closed(self, socket: Socket) -> None:
        exchange = self.open.pop(socket, None)
        if exchange is not None:
            exchange.closed()

    def _follow(self, socket: Socket, ends: tuple[str, str], server: Process, *, is_of_node: bool) -> None:
        process = socket.process
        exchange = Exchange(self, ends, server, lambda: process.now_us, is_of_node=is_of_node)
        self.open[socket] = exchange

    def place(self, place: tuple[str | bytes, int]) -> TopicPartition:
        """Returns a partition by the name or the id of its topic."""
        topic, index = place
        if isinstance(topic, bytes):
            if topic not in self._topics:
                for node in self._cluster.nodes.values():
                    image = None if node.broker is None else node.broker.metadata.image.topics_by_id.get(topic)
                    if image is not None:
                        self._topics[topic] = image.name
            topic = self._topics.get(topic, "?")
        return TopicPartition(topic, index)

    def produced(self, request: Request, frame: bytes) -> list[Answered]:
        """Returns the rows of a Produce answer, which several listeners want."""
        if self._rows[0] is not frame:
            self._rows = frame, list(rows_of(request, frame))
        return self._rows[1]

    def fail(self, error: Exception) -> None:
        """Adds a failure to the problems, for a checker to raise later."""
        if not isinstance(error, Violation):
            error = Violation(f"a frame cannot be read: {type(error).__name__}: {error}")
        self.problems.append(error)
