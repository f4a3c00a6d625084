"""A broker's life as the controller sees it: registration, heartbeats, controlled shutdown (KIP-631).

    start     register this incarnation, then heartbeats; the controller unfences a broker that has caught up
    stop      heartbeats ask to shut down; the controller moves the leaderships away and says when

The controller of this process is called directly; its answers come when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.common.host import Host, Timer
from barnabas.controller.kraft.controller import Controller
from barnabas.metadata.cluster import Endpoint
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


class BrokerLifecycle:
    """Keeps this broker registered. `epoch` is -1 until the controller gave one."""

    def __init__(
        self, host: Host, config: BrokerConfig, controller: Controller, store: MetadataStore, cluster_id: str
    ) -> None:
        self._host = host
        self._config = config
        self._controller = controller
        self._store = store
        self._cluster_id = cluster_id
        self._timer: Timer | None = None
        self._stopping = False
        self._on_stopped: Callable[[], None] | None = None
        self.epoch = -1

    def start(self, endpoints: Sequence[Endpoint], directories: Sequence[bytes], previous_broker_epoch: int) -> None:
        """Register. ConfigError when the controller refuses this broker."""
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._host.random.uuid(),
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in endpoints
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=feature.name,
                    min_supported_version=feature.min_version,
                    max_supported_version=feature.max_version,
                )
                for feature in SUPPORTED_FEATURES
            ],
            rack=self._config.rack,
            log_dirs=sorted(directories),
            previous_broker_epoch=previous_broker_epoch,
        )
        self._controller.register_broker(request, self._on_registered)

    def stop(self, done: Callable[[], None]) -> None:
        """Controlled shutdown; `done` once the controller lets go, maybe at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.epoch < 0 or not self._controller.is_active:
            done()
            return
        self._stopping = True
        self._on_stopped = done
        self._beat()

    def _on_registered(self, response: BrokerRegistrationResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            raise ConfigError(f"the controller refuses broker {self._config.node_id}: {code.name}")
        self.epoch = response.broker_epoch
        self._beat()

    def _beat(self) -> None:
        self._timer = None
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._store.image.offset,
            want_fence=False,
            want_shut_down=self._stopping,
        )
        self._controller.broker_heartbeat(request, self._on_heartbeat)

    def _on_heartbeat(self, response: BrokerHeartbeatResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            self._host.faults.report(f"the controller answered a heartbeat with {code.name}")
        if self._stopping and (response.should_shut_down or response.error_code != ErrorCode.NONE):
            done, self._on_stopped = self._on_stopped, None
            if done is not None:
                done()
            return
        caught_up = not response.is_fenced and not self._stopping
        interval_ms = self._config.int_of("broker.heartbeat.interval.ms") if caught_up else 10
        self._timer = self._host.timers.call_later(interval_ms, self._beat)
