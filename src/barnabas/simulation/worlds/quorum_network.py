"""The time and the network of the quorum's world: one event heap; messages are delayed, lost, doubled, reordered and
damaged.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

from barnabas.common.errors import ErrorCode
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.message import Message

Address = tuple[str, int]
#: The codes with which a confused peer refuses a request.
_REFUSALS = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class Heap:
    """Events by time, then by the order of their creation. Times in ms, fractions allowed."""

    def __init__(self, after_event: Callable[[], None]) -> None:
        """Creates an empty heap. `after_event` is called after every event."""
        self._after_event = after_event
        self.now = 0.0
        self.count = 0
        self._sequence = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (max(time, self.now), self._sequence, action))

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def run_until(self, time: float, stop: Callable[[], bool] | None = None) -> None:
        while self._events and self._events[0][0] <= time and (stop is None or not stop()):
            self.now, _, action = heapq.heappop(self._events)
            action()
            self.count += 1
            self._after_event()
        if stop is None or not stop():
            self.now = max(self.now, time)


class Faults:
    """The present faults of the network."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.doubling = 0.0
        self.delay_ms_max = 2.0
        #: The share of answers that arrive damaged.
        self.damage = 0.0
        #: The directions (from, to) in which no message passes.
        self.cut: set[tuple[int, int]] = set()

    def heal(self) -> None:
        self.__init__()  # type: ignore[misc]


class Nodes(Protocol):
    """The nodes of the network."""

    def node_at(self, address: Address) -> int:
        """Returns the id of the node at this address; -1 if there is none."""

    def is_up(self, node_id: int) -> bool: ...

    def deliver(self, node_id: int, request: Message, answer: Callable[[Message], None]) -> None:
        """Delivers a request to a node that is up."""

    def on_answer(self, source: int, target: int, request: Message, response: Message) -> None:
        """Handles an answer of `target`, which can be lost on its way."""


class Network:
    """The carrier of requests to the node at an address, and of its answer."""

    def __init__(self, heap: Heap, chance: random.Random, nodes: Nodes, *, on_wire: bool) -> None:
        self.heap = heap
        self.faults = Faults()
        self._chance = chance
        self._on_wire = on_wire
        self.refused: set[tuple[int, Address]] = set()
        self._nodes = nodes

    def send(
        self, source: int, address: Address, request: Message, reply: Callable[[Message | None], None], timeout_ms: int
    ) -> None:
        target = self._nodes.node_at(address)
        answered: list[bool] = []

        def finish(response: Message | None) -> None:
            if not answered:
                answered.append(True)
                if response is not None:
                    self.refused.discard((source, address))
                reply(response)

        self.heap.later(timeout_ms, lambda: finish(None))
        if self._passes(source, target):
            self.heap.later(self._delay(), lambda: self._arrive(source, target, address, request, finish))
            if self._chance.random() < self.faults.doubling:
                self.heap.later(self._delay() * 5, lambda: self._arrive(source, target, address, request, finish))

    def _passes(self, source: int, target: int) -> bool:
        return (source, target) not in self.faults.cut and self._chance.random() >= self.faults.loss

    def _delay(self) -> float:
        return 0.1 + self._chance.random() * self.faults.delay_ms_max

    def _arrive(
        self, source: int, target: int, address: Address, request: Message, finish: Callable[[Message | None], None]
    ) -> None:
        if (source, target) in self.faults.cut:
            return
        if not self._nodes.is_up(target):
            self.refused.add((source, address))
            self.heap.later(0.1, lambda: finish(None))
            return
        sent = self._through_wire(request)

        def answer(response: Message) -> None:
            self._nodes.on_answer(source, target, sent, response)
            if self._passes(target, source):
                passed = self._through_wire(response)
                if self.faults.damage and self._chance.random() < self.faults.damage:
                    passed = damaged(passed, self._chance)

                def arrive() -> None:
                    if (target, source) not in self.faults.cut:
                        finish(passed)

                self.heap.later(self._delay(), arrive)

        self._nodes.deliver(target, sent, answer)

    def _through_wire(self, message: Message) -> Message:
        """Encodes and decodes the message if the plan asks for it, which takes most of a run's time."""
        if not self._on_wire:
            return message
        cls: type[Any] = type(message)
        version = cls.VERSIONS[1]
        decoded: Message = decode(cls, version, bytes(encode(message, version)))[0]
        return decoded


def damaged(message: Any, chance: random.Random) -> Any:
    """Returns an answer as a confused peer sends it: a refusal, about nothing or too much, with broken records."""
    slot = "responses" if hasattr(message, "responses") else "topics"
    topics = getattr(message, slot, None)
    if not hasattr(message, "error_code") or not topics:
        return message
    other, way = copy(message), chance.choice(("refusal", "nothing", "too much", "index", "records"))
    rows = topics[0].partitions
    if way == "refusal" or not rows:
        other.error_code = int(chance.choice(_REFUSALS))
        return other
    if way == "nothing":
        setattr(other, slot, [])
        return other
    if way == "too much":
        setattr(other, slot, topics * 2)
        return other
    row, topic = copy(rows[0]), copy(topics[0])
    if way == "index":
        setattr(row, next(name for name in ("partition_index", "partition", "index") if hasattr(row, name)), 1)
    elif getattr(row, "records", None):
        records = bytes(row.records)
        flipped = records[:-1] + bytes([records[-1] ^ 1])
        row.records = chance.choice((flipped, records[: chance.randrange(len(records))]))
    topic.partitions = [row]
    setattr(other, slot, [topic])
    return other
