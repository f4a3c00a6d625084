"""A broker's life as the controller sees it: registration, heartbeats, controlled shutdown (KIP-631).

start     register this incarnation until a controller takes it, then heartbeats; the controller unfences a broker
          that has followed the metadata up to its own registration
ready     the first heartbeat that finds it unfenced: clients find it from now on
fenced    its session ran out, or its connection ended and it could not be dialled: the controller has others lead; the
          next heartbeat that is answered unfences it. The log tells both, and since when nobody has answered
stop      heartbeats ask to shut down; the controller moves the leaderships away and says when
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host, Timer
from barnabas.common.reports import LimitedReports
from barnabas.metadata.cluster import Endpoint
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.refusing import read_refusing, refusing_tags
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.versions import V_3_7_IV2
from barnabas.protocol.message import Message
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

#: Between heartbeats of a broker that waits to be unfenced or to be let go.
_EAGER_MS: Final = 10
#: Between heartbeats while nobody answers: whatever parted them may be over at any moment.
_UNANSWERED_MS: Final = 200
#: Between heartbeats that fail while there is a directory without room to be told of.
_TELL_AGAIN_MS: Final = 100
#: Between attempts to register.
_REGISTRATION_PAUSE_MS: Final = 50
_REGISTRATION_PAUSE_MS_MAX: Final = 1_000
#: What does not get better by asking again, and what to do about it.
_HOPELESS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its directories belong to another cluster: configure empty ones, or the right "
    "controller.quorum addresses",
    ErrorCode.INVALID_REGISTRATION: "one of log.dirs is a copy of another node's directory: each node needs its own",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster uses a metadata.version or feature level that it does not support",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not accept brokers in ZooKeeper mode",
}

#: Causes of lines in the log.
_UNANSWERED: Final = "unanswered"
_FENCED: Final = "fenced"
#: What may pass by itself.
_WAITING: Final = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "; another process with this node.id is running, or ended a moment ago: "
    "each node needs its own node.id",
}


class BrokerLifecycle:
    """Keeps this broker registered. `epoch` is -1 until the controller gave one."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        access: ControllerAccess,
        store: MetadataStore,
        cluster_id: str,
        on_epoch: Callable[[], None],
        refusing: Callable[[], Sequence[bytes]],
    ) -> None:
        """`on_epoch`: the controller has given this incarnation its epoch. `refusing`: the ids of directories that take
        no writes for now."""
        self._on_epoch = on_epoch
        self._host = host
        self._config = config
        self._access = access
        self._store = store
        self._cluster_id = cluster_id
        self._registration: BrokerRegistrationRequest | None = None
        self._give_up_ms = 0
        self._pause_ms = _REGISTRATION_PAUSE_MS
        self._timer: Timer | None = None
        self._asking = False
        self._stopping = False
        self._beats_no_more = False
        self._on_ready: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None
        #: Ids of directories that failed (KIP-858); every heartbeat names them.
        self._lost_directories: list[bytes] = []
        self._untold: Timer | None = None
        self._refusing = refusing
        #: As the controller was last told.
        self._told_refusing: Sequence[bytes] = ()
        #: Whether the controller that was told of them has ignored it: Apache Kafka's does.
        self._is_unheard = False
        self._is_amending = False
        self._reports = LimitedReports(host.faults, host.clock)
        #: When the controller last answered a heartbeat.
        self._answered_ms = 0
        #: As the metadata told last of this incarnation; None before they know it.
        self._is_fenced: bool | None = None
        self.epoch = -1

    def start(
        self,
        endpoints: Sequence[Endpoint],
        directories: Sequence[bytes],
        previous_broker_epoch: int,
        on_ready: Callable[[], None],
    ) -> None:
        """Register. A controller that refuses this broker for good ends the process (`host.faults.fatal`)."""
        self._on_ready = on_ready
        self._registration = BrokerRegistrationRequest(
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
        self._give_up_ms = self._host.clock.now_ms() + self._config.int_of("initial.broker.registration.timeout.ms")
        self._register()

    def stop(self, done: Callable[[], None]) -> None:
        """Controlled shutdown; calls `done` once the controller lets go, which can be within this call. Without
        `controlled.shutdown.enable` the controller is not asked, and finds out as after a crash."""
        self._cancel_timer()
        self._stopping = True
        if self.epoch < 0 or not self._config.bool_of("controlled.shutdown.enable"):
            self._beats_no_more = True
            done()
            return
        self._on_stopped = done
        if not self._asking:
            self._beat()

    def directory_failed(self, directory_id: bytes) -> None:
        """Tell the controller, now. A broker that cannot for `log.dir.failure.timeout.ms` ends, for others still take
        it for the leader of what it has lost."""
        self._lost_directories.append(directory_id)
        if self._untold is None:
            timeout_ms = self._config.int_of("log.dir.failure.timeout.ms")
            self._untold = self._host.timers.call_later(timeout_ms, self._give_up_telling)
        self._beat_soon()

    def refusing_changed(self) -> None:
        """Other directories than before take no writes: tell the controller, now."""
        if not self._stopping:
            self._beat_soon()

    def _beat_soon(self) -> None:
        """Unless an answer is awaited: the next heartbeat follows it at once where there is more to tell."""
        if self._timer is not None and self.epoch >= 0:
            self._cancel_timer()
            # Not from within the request that met the fault.
            self._timer = self._host.timers.call_later(0, self._beat)

    def _give_up_telling(self) -> None:
        if not self._stopping:
            self._host.faults.fatal("cannot report a failed log directory to the controller")

    def _told(self) -> None:
        if self._untold is not None:
            self._untold.cancel()
            self._untold = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- registration

    def _register(self) -> None:
        self._timer = None
        assert self._registration is not None, "made by start"
        left_ms = max(1, self._give_up_ms - self._host.clock.now_ms())
        self._access.ask(self._registration, self._on_registered, timeout_ms=left_ms)

    def _on_registered(self, response: Message | None) -> None:
        if self._stopping:
            return
        code = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, BrokerRegistrationResponse):
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self.epoch = response.broker_epoch
                self._is_fenced = None
                self._answered_ms = self._host.clock.now_ms()
                self._on_epoch()
                self._beat()
                return
        who = f"the controller refuses broker {self._config.node_id}: {code.name}"
        if code in _HOPELESS:
            self._host.faults.fatal(f"{who}; {_HOPELESS[code]}")
        elif self._host.clock.now_ms() >= self._give_up_ms:
            self._host.faults.fatal(f"{who}; giving up after initial.broker.registration.timeout.ms")
        else:
            # Most of all DUPLICATE_BROKER_REGISTRATION: the last incarnation's session has to run out.
            if self._pause_ms >= _REGISTRATION_PAUSE_MS_MAX:
                left_s = (self._give_up_ms - self._host.clock.now_ms()) // 1000
                self._host.faults.report(f"{who}{_WAITING.get(code, '')}; retrying for {left_s} s")
            self._timer = self._host.timers.call_later(self._pause_ms, self._register)
            self._pause_ms = min(2 * self._pause_ms, _REGISTRATION_PAUSE_MS_MAX)

    def _register_again(self) -> None:
        """Another incarnation was registered after this one: a request of a process that is dead, and was long under
        way. Nobody beats for it, so its session ends; where it lives after all, this one is refused, and gives up."""
        assert self._registration is not None, "made by start"
        # Never the proof of a clean shutdown: this process has been running.
        self._registration.previous_broker_epoch = -1
        self._registration.incarnation_id = self._host.random.uuid()
        self._give_up_ms = self._host.clock.now_ms() + self._config.int_of("initial.broker.registration.timeout.ms")
        self._pause_ms = _REGISTRATION_PAUSE_MS
        self._register()

    def _maybe_amend(self) -> None:
        """Register this same incarnation once more, where `metadata.version` has risen to one that keeps what the
        first registration could not: the directories (KIP-858)."""
        image = self._store.image
        own = image.brokers.get(self._config.node_id)
        if own is None or own.epoch != self.epoch or own.directories or image.metadata_version < V_3_7_IV2:
            return
        if self._is_amending or self._stopping:
            return
        self._is_amending = True
        assert self._registration is not None, "made by start"
        self._access.ask(self._registration, self._on_amended)

    def _on_amended(self, response: Message | None) -> None:
        self._is_amending = False
        code = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, BrokerRegistrationResponse):
            code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._host.faults.report(f"the controller refused to update broker {self._config.node_id}: {code.name}")
            self._host.timers.call_later(_REGISTRATION_PAUSE_MS_MAX, self._maybe_amend)

    # -- heartbeats

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A broker on its way out waits until all others have told the controller that they know: tell it now."""
        leaving = any(
            broker is not None and broker.in_controlled_shutdown and not broker.fenced
            for broker in delta.changed_brokers.values()
        )
        if leaving and self.epoch >= 0 and not self._asking:
            self._cancel_timer()
            self._timer = self._host.timers.call_later(0, self._beat)
        if delta.changed_features or self._config.node_id in delta.changed_brokers:
            self._maybe_amend()
        if self._config.node_id in delta.changed_brokers:
            self._tell_fencing(image)

    def _tell_fencing(self, image: MetadataImage) -> None:
        own = image.brokers.get(self._config.node_id)
        if own is None or own.epoch != self.epoch or own.fenced == self._is_fenced:
            return
        before, self._is_fenced = self._is_fenced, own.fenced
        who = f"broker {own.broker_id}"
        if not own.fenced:
            self._reports.over(_FENCED, f"{who} is unfenced again")
        elif before is not None:
            self._reports.inform(
                _FENCED, f"{who} was fenced by the controller: other brokers lead its partitions for now"
            )

    def _beat(self) -> None:
        self._timer = None
        self._asking = True
        refusing = self._told_refusing = tuple(self._refusing())
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._store.image.offset,
            want_fence=bool(refusing) and self._must_be_fenced(),
            want_shut_down=self._stopping,
            offline_log_dirs=list(self._lost_directories),
            unknown_tags=refusing_tags(refusing) if refusing else (),
        )
        lost = len(self._lost_directories)
        timeout_ms = self._config.int_of("broker.session.timeout.ms") // 2
        self._access.ask(request, lambda response: self._on_heartbeat(response, lost), timeout_ms=timeout_ms)

    def _must_be_fenced(self) -> bool:
        """Whether a controller that knows nothing of full directories has to be told in the one way that it does know.
        Apache Kafka's broker ends for want of room; this one asks to be fenced until it has some, where every partition
        that it leads can be led by another replica in sync and none of its directories can be written."""
        image, own_id = self._store.image, self._config.node_id
        own = image.brokers.get(own_id)
        if not self._is_unheard or own is None or not set(own.directories) <= set(self._told_refusing):
            return False
        active = {broker_id for broker_id, broker in image.brokers.items() if broker.is_active and broker_id != own_id}
        return all(
            partition.leader != own_id or not active.isdisjoint(partition.isr)
            for topic in image.topics_by_name.values()
            for partition in topic.partitions
        )

    def _on_heartbeat(self, response: Message | None, lost: int) -> None:
        self._asking = False
        if self._beats_no_more:
            return
        answer = response if isinstance(response, BrokerHeartbeatResponse) else None
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(answer.error_code)
        if answer is None:
            self._tell_silence()
        else:
            self._answered_ms = self._host.clock.now_ms()
            self._reports.over(_UNANSWERED, "the controller answers heartbeats again")
        if answer is not None and code is not ErrorCode.NONE:
            self._reports.report(code, f"the controller answered a heartbeat with {code.name}")
        elif answer is not None and lost == len(self._lost_directories):
            self._told()
        was_unheard = self._is_unheard
        if answer is not None and code is ErrorCode.NONE:
            self._is_unheard = bool(self._told_refusing) and read_refusing(answer.unknown_tags) is None
        if self._stopping and (answer is None or answer.should_shut_down or code is not ErrorCode.NONE):
            done, self._on_stopped = self._on_stopped, None
            if done is not None:
                done()
            return
        if code is ErrorCode.STALE_BROKER_EPOCH:
            self._register_again()
            return
        is_usable = answer is not None and code is ErrorCode.NONE and not answer.is_fenced
        if is_usable and self._on_ready is not None:
            on_ready, self._on_ready = self._on_ready, None
            on_ready()
        is_settled = (is_usable or code is not ErrorCode.NONE) and not self._stopping
        if self._told_refusing and was_unheard and self._is_unheard:
            is_settled = True  # fenced at its own wish
        elif lost < len(self._lost_directories) or self._is_unheard or tuple(self._refusing()) != self._told_refusing:
            is_settled = False
        interval_ms = self._config.int_of("broker.heartbeat.interval.ms") if is_settled else _EAGER_MS
        if answer is None and is_settled:
            interval_ms = min(interval_ms, _UNANSWERED_MS)
        if self._told_refusing and code is not ErrorCode.NONE:
            interval_ms = min(interval_ms, _TELL_AGAIN_MS)
        self._timer = self._host.timers.call_later(interval_ms, self._beat)

    def _tell_silence(self) -> None:
        """Nobody has answered a heartbeat."""
        leader_id = self._access.leader_id()
        silent_s = (self._host.clock.now_ms() - self._answered_ms) / 1000
        session_s = self._config.int_of("broker.session.timeout.ms") / 1000
        who = f"no response from controller {leader_id}"
        if leader_id < 0:
            who = "no active controller is known, and no heartbeat got a response"
        text = f"{who} for {silent_s:.1f} s; after {session_s:g} s (broker.session.timeout.ms) this broker is fenced"
        self._reports.report(_UNANSWERED, text)
