"""Producer ids for idempotent producers, taken from blocks that the controller allocates (KIP-730)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

#: `done(error, producer id)`.
Done = Callable[[ErrorCode, int], None]

#: The time after which the client gets a retriable error.
_BLOCK_TIMEOUT_MS: Final = 5_000


class ProducerIdPool:
    """The current block of producer ids. There is one request for the next block at a time; callers wait for it."""

    __slots__ = ("_access", "_broker_epoch", "_broker_id", "_end", "_next", "_requested", "_waiting")

    def __init__(self, access: ControllerAccess, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._access = access
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._requested = False
        self._waiting: deque[Done] = deque()

    def take(self, done: Done) -> None:
        """Passes a unique producer id to `done`, possibly within this call."""
        if self._next < self._end:
            self._next += 1
            done(ErrorCode.NONE, self._next - 1)
            return
        self._waiting.append(later(done))
        if not self._requested:
            self._requested = True
            request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            self._access.send(request, self._on_block, timeout_ms=_BLOCK_TIMEOUT_MS)

    def _on_block(self, response: Message | None) -> None:
        self._requested = False
        waiting, self._waiting = self._waiting, deque()
        if not isinstance(response, AllocateProducerIdsResponse) or response.error_code != ErrorCode.NONE:
            for done in waiting:
                done(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            return
        self._next = response.producer_id_start
        self._end = self._next + response.producer_id_len
        for done in waiting:
            self.take(done)
