"""Probes of brokers whose connection to the active controller has closed.

When a process dies, its connections close immediately, long before its session ends. So when the connection of a
broker's heartbeats closes, the controller dials the broker's own listener: if it is refused, the process is gone, and
the broker is fenced immediately. While the system cleans up after a dead process, its listener can still accept for a
moment; so the probe sends a request, and dials again if the connection closes without a response. A broker that
responds, or a dial that times out, decides nothing, and the session decides. A controller that becomes active probes
all brokers: what ended its predecessor may have ended a broker too.

A machine that loses its power closes no connection. If it is back before the session ends, its new process is refused,
because the old one seems to be connected; the refusal is a reason for a probe, too. The new process does not listen
before it is registered, so a port that refuses connections belongs to no process that is registered.

A wrongly fenced broker loses one heartbeat interval: its next heartbeat unfences it.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Link
from barnabas.controller.kraft.controller import Controller
from barnabas.metadata.registrations import BrokerImage
from barnabas.protocol.peer_security import inter_broker_security
from barnabas.protocol.process_watch import PROBE_REQUEST

_BUFFER_BYTES: Final = 4096
#: A probe without a result is abandoned after this time.
_PROBE_MS_MAX: Final = 1_000
_DIALS_MAX: Final = 20
_PAUSE_MS: Final = 10


class BrokerLiveness:
    """The probes of brokers by the active controller, at most one per broker at a time."""

    def __init__(self, host: Host, config: BrokerConfig, controller: Controller) -> None:
        self._host = host
        self._listener = config.inter_broker_listener
        self._tls = inter_broker_security(config).tls
        self._controller = controller
        self._node_id = config.node_id
        self._probing: set[int] = set()

    def probe_all(self) -> None:
        """Probes all brokers, after this controller has become active."""
        for broker in self._controller.image.brokers.values():
            if broker.broker_id != self._node_id:
                self.probe(broker.broker_id, broker.epoch)

    def on_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        """Reports to the controller that the connection of this incarnation's heartbeats closed, and probes the
        broker."""
        self._controller.broker_disconnected(broker_id, broker_epoch)
        self.probe(broker_id, broker_epoch)

    def on_refused(self, broker_id: int) -> None:
        """Probes the registered incarnation of a broker, because of which the registration of another was refused."""
        broker = self._controller.image.brokers.get(broker_id)
        if broker is not None and broker_id != self._node_id:
            self.probe(broker_id, broker.epoch)

    def probe(self, broker_id: int, broker_epoch: int) -> None:
        """Probes whether this incarnation is still running."""
        broker = self._registered(broker_id, broker_epoch)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if broker is None or broker.fenced or endpoint is None or broker_id in self._probing:
            return
        self._probing.add(broker_id)
        _Probe(self, self._host, broker, (endpoint.host, endpoint.port), self._tls).start()

    def on_probed(self, broker: BrokerImage, *, is_gone: bool) -> None:
        self._probing.discard(broker.broker_id)
        if is_gone and self._registered(broker.broker_id, broker.epoch) is not None:
            self._controller.broker_process_ended(broker.broker_id)

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerImage | None:
        """Returns this incarnation's registration if it is still the current one and this controller is active;
        otherwise None.
        """
        if not self._controller.is_active:
            return None
        broker = self._controller.image.brokers.get(broker_id)
        return broker if broker is not None and broker.epoch == broker_epoch else None


class _Probe:
    """A probe of a broker, over as many dials as needed; it is the `common.host.LinkEnd` of each of them in turn."""

    def __init__(
        self, liveness: BrokerLiveness, host: Host, broker: BrokerImage, address: tuple[str, int], tls: str | None
    ) -> None:
        self._liveness = liveness
        self._host = host
        self._broker = broker
        self._address = address
        self._tls = tls
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._link: Link | None = None
        self._dials = 0
        self._is_over = False

    def start(self) -> None:
        self._host.timers.call_later(_PROBE_MS_MAX, lambda: self._end(is_gone=False))
        self._dial()

    def _dial(self) -> None:
        if not self._is_over:
            self._dials += 1
            self._link = self._host.links.dial(*self._address, self, self._tls)

    def _end(self, *, is_gone: bool) -> None:
        if not self._is_over:
            self._is_over = True
            if self._link is not None:
                self._link.close()
            self._liveness.on_probed(self._broker, is_gone=is_gone)

    def connected(self) -> None:
        if self._link is not None and not self._is_over:
            self._link.write([PROBE_REQUEST])

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
