"""Whether a broker whose connection to the active controller ended is still there.

A process that dies takes its connections with it at once, long before its session runs out. So when the connection
that a broker's heartbeats came by ends, the controller dials the broker's own listener: refused, that process is gone,
and it is fenced now. While a system takes a dead process apart, its listener may still accept for a moment: so it is
asked something, and dialled again when it hangs up instead of answering. A broker that answers, or a dial that gets
lost, says nothing, and the session decides. A controller that becomes active looks for all brokers: whatever ended its
predecessor may have ended a broker too.

A fence by mistake costs the broker one heartbeat: it is unfenced by its next one.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Link
from barnabas.controller.kraft.controller import Controller
from barnabas.metadata.cluster import BrokerImage

_BUFFER_BYTES: Final = 4096
#: A look that found nothing out for so long is given up.
_LOOK_MS_MAX: Final = 1_000
_DIALS_MAX: Final = 20
_PAUSE_MS: Final = 10
#: ApiVersions, version 0, without a client id: every broker answers it.
_QUESTION: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)


class BrokerLiveness:
    def __init__(self, host: Host, config: BrokerConfig, controller: Controller) -> None:
        self._host = host
        self._listener = config.inter_broker_listener
        self._controller = controller
        self._node_id = config.node_id
        self._looking: set[int] = set()

    def look_for_all(self) -> None:
        """This controller has just become active."""
        for broker in self._controller.image.brokers.values():
            if broker.broker_id != self._node_id:
                self.look_for(broker.broker_id, broker.epoch)

    def on_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of this incarnation's heartbeats ended."""
        self._controller.broker_disconnected(broker_id, broker_epoch)
        self.look_for(broker_id, broker_epoch)

    def look_for(self, broker_id: int, broker_epoch: int) -> None:
        """See whether this incarnation is still there."""
        broker = self._registered(broker_id, broker_epoch)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if broker is None or broker.fenced or endpoint is None or broker_id in self._looking:
            return
        self._looking.add(broker_id)
        _Look(self, self._host, broker, (endpoint.host, endpoint.port)).start()

    def found(self, broker: BrokerImage, *, is_gone: bool) -> None:
        self._looking.discard(broker.broker_id)
        if is_gone and self._registered(broker.broker_id, broker.epoch) is not None:
            self._controller.broker_is_gone(broker.broker_id)

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerImage | None:
        """This incarnation, as the active controller knows it."""
        if not self._controller.is_active:
            return None
        broker = self._controller.image.brokers.get(broker_id)
        return broker if broker is not None and broker.epoch == broker_epoch else None


class _Look:
    """One look at a broker, over as many dials as it takes: `common.host.LinkEnd` of each of them in turn."""

    def __init__(self, liveness: BrokerLiveness, host: Host, broker: BrokerImage, address: tuple[str, int]) -> None:
        self._liveness = liveness
        self._host = host
        self._broker = broker
        self._address = address
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._link: Link | None = None
        self._dials = 0
        self._is_over = False

    def start(self) -> None:
        self._host.timers.call_later(_LOOK_MS_MAX, lambda: self._end(is_gone=False))
        self._dial()

    def _dial(self) -> None:
        if not self._is_over:
            self._dials += 1
            self._link = self._host.links.dial(*self._address, self)

    def _end(self, *, is_gone: bool) -> None:
        if not self._is_over:
            self._is_over = True
            if self._link is not None:
                self._link.close()
            self._liveness.found(self._broker, is_gone=is_gone)

    def connected(self) -> None:
        if self._link is not None and not self._is_over:
            self._link.write([_QUESTION])

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._end(is_gone=False)

    def closed(self, error: OSError | None) -> None:
        self._link = None
        if isinstance(error, ConnectionRefusedError):
            self._end(is_gone=True)
        elif self._dials < _DIALS_MAX:
            self._host.timers.call_later(_PAUSE_MS, self._dial)
        else:
            self._end(is_gone=False)
