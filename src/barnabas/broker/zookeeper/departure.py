"""The controlled shutdown of a broker in ZooKeeper mode: the controller moves its leaderships; it is asked again if
some remain.

controlled.shutdown.max.retries       how often it is asked
controlled.shutdown.retry.backoff.ms  the pause before it is asked again
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.protocol.message import Message
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


class Departure:
    """A controlled shutdown; `done` is called once, also if the controller did not move everything."""

    def __init__(
        self, host: Host, config: BrokerConfig, access: ControllerAccess, broker_epoch: int, done: Callable[[], None]
    ) -> None:
        self._host = host
        self._config = config
        self._access = access
        self._broker_epoch = broker_epoch
        self._done = done
        self._left = config.int_of("controlled.shutdown.max.retries")

    def start(self) -> None:
        if self._left <= 0:
            self._done()
            return
        self._left -= 1
        request = ControlledShutdownRequest(broker_id=self._config.node_id, broker_epoch=self._broker_epoch)
        timeout_ms = self._config.int_of("controller.socket.timeout.ms")
        self._access.send(request, self._on_answer, timeout_ms=timeout_ms)

    def _on_answer(self, response: Message | None) -> None:
        problem = "no controller answered"
        if isinstance(response, ControlledShutdownResponse):
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                self._done()
                return
            problem = ErrorCode(response.error_code).name
            if response.error_code == ErrorCode.NONE:
                problem = f"it still leads {len(response.remaining_partitions)} partitions"
        if self._left <= 0:
            self._host.faults.report(f"the controlled shutdown did not complete: {problem}; stopping without it")
            self._done()
        else:
            self._host.timers.call_later(self._config.int_of("controlled.shutdown.retry.backoff.ms"), self.start)
