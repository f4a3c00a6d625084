"""The controlled shutdown of a broker in ZooKeeper mode: the controller moves its leaderships; the request is repeated
if some remain and another live broker could take them.

controlled.shutdown.max.retries       how often it is asked
controlled.shutdown.retry.backoff.ms  the pause before it is asked again
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host, Timer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


class Departure:
    """A controlled shutdown; `done` is called once, even if the controller did not move everything.

    The last broker of a cluster does not wait: no other broker can take its leaderships. `is_alone` returns whether
    this broker knows of no other live one; `check` is to be called when that may have changed.
    """

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        access: ControllerAccess,
        broker_epoch: int,
        is_alone: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._host = host
        self._config = config
        self._access = access
        self._broker_epoch = broker_epoch
        self._is_alone = is_alone
        self._done = done
        #: The number of partitions that the controller could not move, and the pause before the next request.
        self._led = 0
        self._pause: Timer | None = None
        self._left = config.int_of("controlled.shutdown.max.retries")

    def start(self) -> None:
        """Requests from the controller that it moves the leaderships."""
        self._pause = None
        if self._left <= 0:
            self._done()
            return
        self._left -= 1
        request = ControlledShutdownRequest(broker_id=self._config.node_id, broker_epoch=self._broker_epoch)
        timeout_ms = self._config.int_of("controller.socket.timeout.ms")
        self._access.send(request, self._on_answer, timeout_ms=timeout_ms)

    def check(self) -> None:
        """Ends the pause before the next request if this broker has become the last one."""
        if self._pause is not None and self._led and self._is_alone():
            self._pause.cancel()
            self._pause = None
            self._leave_alone()

    def _on_answer(self, response: Message | None) -> None:
        problem = "no controller answered"
        self._led = 0
        if isinstance(response, ControlledShutdownResponse):
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                self._done()
                return
            problem = ErrorCode(response.error_code).name
            if response.error_code == ErrorCode.NONE:
                self._led = len(response.remaining_partitions)
                problem = f"it still leads {self._led} partitions"
        if self._led and self._is_alone():
            self._leave_alone()
        elif self._left <= 0:
            self._host.faults.report(f"the controlled shutdown did not complete: {problem}; stopping without it")
            self._done()
        else:
            pause_ms = self._config.int_of("controlled.shutdown.retry.backoff.ms")
            self._pause = self._host.timers.call_later(pause_ms, self.start)

    def _leave_alone(self) -> None:
        self._host.faults.inform(f"stopping as the last broker: no other broker can lead its {self._led} partitions")
        self._done()
