"""The queues of requests to the brokers: one for each broker, with one request in flight, in the order of the changes.

A request without an answer is repeated after 100 ms, until it is answered or the broker's registration is gone: a
broker that missed one would have an older state than the next request assumes. A queue belongs to one epoch of its
broker, and ends with it. No queue waits for another (G44).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from barnabas.common.host import Timer, Timers
from barnabas.protocol.message import Message

RETRY_MS: Final = 100

#: A callback that gets the broker, the request and its response.
OnResponse = Callable[[int, Message, Message], None]


class BrokerSender(Protocol):
    """Sends one request to a broker. `reply` is called with the response, or with None if the broker could not be
    reached or the connection ended. The address comes from the controller's image.
    """

    def __call__(
        self, broker_id: int, broker_epoch: int, request: Message, reply: Callable[[Message | None], None]
    ) -> None: ...


class _Queue:
    __slots__ = ("broker_epoch", "is_sending", "items", "timer")

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        #: Requests, and callbacks that wait for those before them.
        self.items: deque[Message | Callable[[], None]] = deque()
        self.is_sending = False
        self.timer: Timer | None = None


class BrokerQueues:
    """The queues of requests to the brokers, for one controller epoch."""

    def __init__(self, timers: Timers, send: BrokerSender, on_response: OnResponse) -> None:
        self._timers = timers
        self._send = send
        self._on_response = on_response
        self._queues: dict[int, _Queue] = {}

    def open(self, broker_id: int, broker_epoch: int) -> None:
        """Begins the queue of a registration, and ends the queue of the broker's earlier registration."""
        known = self._queues.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            self.end(broker_id)
            self._queues[broker_id] = _Queue(broker_epoch)

    def end(self, broker_id: int) -> None:
        """Ends the queue of a broker that is gone: nothing is sent or repeated any more."""
        queue = self._queues.pop(broker_id, None)
        if queue is None:
            return
        if queue.timer is not None:
            queue.timer.cancel()
        for item in queue.items:
            if not isinstance(item, Message):
                item()

    def add(self, broker_id: int, requests: Iterable[Message]) -> None:
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.items.extend(requests)
            self._send_next(broker_id, queue)

    def after_all(self, broker_id: int, done: Callable[[], None]) -> None:
        """Calls back when the broker has answered all requests that were queued before, or is gone."""
        queue = self._queues.get(broker_id)
        if queue is None:
            done()
            return
        queue.items.append(done)
        self._send_next(broker_id, queue)

    def sizes(self) -> dict[int, int]:
        """Returns the number of requests to each broker that are not sent yet."""
        return {
            broker_id: sum(isinstance(item, Message) for item in queue.items) - queue.is_sending
            for broker_id, queue in self._queues.items()
        }

    def close(self) -> None:
        """Ends all queues; answers and timers have no effect any more (G41)."""
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
        self._queues.clear()

    def _send_next(self, broker_id: int, queue: _Queue) -> None:
        if queue.is_sending:
            return
        while queue.items:
            item = queue.items[0]
            if isinstance(item, Message):
                queue.is_sending = True
                self._try(broker_id, queue, item)
                return
            queue.items.popleft()
            item()

    def _try(self, broker_id: int, queue: _Queue, request: Message) -> None:
        queue.timer = None

        def replied(response: Message | None) -> None:
            if self._queues.get(broker_id) is not queue:
                return
            if response is None:
                queue.timer = self._timers.call_later(RETRY_MS, lambda: self._try(broker_id, queue, request))
                return
            queue.items.popleft()
            queue.is_sending = False
            self._on_response(broker_id, request, response)
            if self._queues.get(broker_id) is queue:
                self._send_next(broker_id, queue)

        self._send(broker_id, queue.broker_epoch, request, replied)
