"""Whether a broker whose connection to the active controller ended is still there.

A process that dies takes its connections with it at once, long before its session runs out. So when the connection
that a broker's heartbeats came by ends, the controller dials the broker's own listener: refused, that process is gone,
and it is fenced now. Anything else (it answers, the dial gets lost) says nothing, and the session decides.

A fence by mistake costs the broker one heartbeat: it is unfenced by its next one.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Link
from barnabas.controller.kraft.controller import Controller
from barnabas.metadata.cluster import BrokerImage

_BUFFER_BYTES: Final = 256
#: A dial that is neither refused nor answered for so long is given up.
_DIAL_MS_MAX: Final = 1_000


class BrokerLiveness:
    def __init__(self, host: Host, config: BrokerConfig, controller: Controller) -> None:
        self._host = host
        self._listener = config.inter_broker_listener
        self._controller = controller
        self._looking: set[int] = set()

    def look_for(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of this incarnation's heartbeats ended."""
        broker = self._registered(broker_id, broker_epoch)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if broker is None or broker.fenced or endpoint is None or broker_id in self._looking:
            return
        self._looking.add(broker_id)
        _Dial(self, self._host, broker_id, broker_epoch).start(endpoint.host, endpoint.port)

    def found(self, broker_id: int, broker_epoch: int, *, is_gone: bool) -> None:
        self._looking.discard(broker_id)
        if is_gone and self._registered(broker_id, broker_epoch) is not None:
            self._controller.broker_is_gone(broker_id)

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerImage | None:
        """This incarnation, as the active controller knows it."""
        if not self._controller.is_active:
            return None
        broker = self._controller.image.brokers.get(broker_id)
        return broker if broker is not None and broker.epoch == broker_epoch else None


class _Dial:
    """One look: `common.host.LinkEnd` of a connection that is closed as soon as it stands."""

    def __init__(self, liveness: BrokerLiveness, host: Host, broker_id: int, broker_epoch: int) -> None:
        self._liveness = liveness
        self._host = host
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._link: Link | None = None
        self._is_over = False

    def start(self, host: str, port: int) -> None:
        self._link = self._host.links.dial(host, port, self)
        self._host.timers.call_later(_DIAL_MS_MAX, self.connected)

    def _end(self, *, is_gone: bool) -> None:
        if not self._is_over:
            self._is_over = True
            if self._link is not None:
                self._link.close()
            self._liveness.found(self._broker_id, self._broker_epoch, is_gone=is_gone)

    def connected(self) -> None:
        self._end(is_gone=False)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        """Nobody asked for anything."""

    def closed(self, error: OSError | None) -> None:
        self._end(is_gone=isinstance(error, ConnectionRefusedError))
