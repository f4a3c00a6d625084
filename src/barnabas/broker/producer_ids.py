"""Producer ids for idempotent producers, handed out from blocks that the controller gives (KIP-730)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft.controller import Controller

#: `done(error, producer id)`.
Done = Callable[[ErrorCode, int], None]


class ProducerIdPool:
    """The block at hand. One request for the next block at a time; who comes meanwhile waits."""

    __slots__ = ("_broker_epoch", "_broker_id", "_controller", "_end", "_next", "_requested", "_waiting")

    def __init__(self, controller: Controller, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._requested = False
        self._waiting: deque[Done] = deque()

    def take(self, done: Done) -> None:
        """An id that nobody else gets, maybe at once."""
        if self._next < self._end:
            self._next += 1
            done(ErrorCode.NONE, self._next - 1)
            return
        self._waiting.append(done)
        if not self._requested:
            self._requested = True
            self._controller.allocate_producer_ids(self._broker_id, self._broker_epoch(), self._on_block)

    def _on_block(self, first_id: int, length: int, error: ErrorCode) -> None:
        self._requested = False
        waiting, self._waiting = self._waiting, deque()
        if error is not ErrorCode.NONE:
            for done in waiting:
                done(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            return
        self._next, self._end = first_id, first_id + length
        for done in waiting:
            self.take(done)
