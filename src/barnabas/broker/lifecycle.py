"""A broker's registration, heartbeats and controlled shutdown (KIP-631).

start     registers this incarnation until a controller accepts it, then sends heartbeats; the controller unfences a
          broker that has followed the metadata up to its own registration
ready     the first heartbeat response that reports it unfenced: from now on clients find it in the metadata
fenced    its session ended, or its connection closed and it could not be reached: other brokers lead its partitions.
          The next answered heartbeat unfences it. The log reports both, and the time since the last response
stop      heartbeats request a shutdown; the controller moves the leaderships away, then allows it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host, Timer
from barnabas.common.reports import LimitedReports
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.registrations import Endpoint, endpoint_rows, feature_rows
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.unwritable import read_unwritable, unwritable_tags
from barnabas.metadata.versions import V_3_7_IV2
from barnabas.protocol.message import Message
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

#: The heartbeat interval of a broker that waits to be unfenced or to be allowed to stop.
_EAGER_MS: Final = 10
#: The heartbeat interval while no response arrives: the connection can come back at any moment.
_UNANSWERED_MS: Final = 200
#: The heartbeat interval while heartbeats fail and a full directory is still to be reported.
_REPORT_RETRY_MS: Final = 100
#: Pauses between attempts to register: the first, and the longest.
_REGISTRATION_PAUSE_MS: Final = 50
_REGISTRATION_PAUSE_MS_MAX: Final = 1_000
#: Errors that a retry cannot fix, with their remedy.
_PERMANENT_ERRORS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its directories belong to another cluster: configure empty ones, or the right "
    "controller.quorum addresses",
    ErrorCode.INVALID_REGISTRATION: "one of log.dirs is a copy of another node's directory: each node needs its own",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster uses a metadata.version or feature level that it does not support",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not accept brokers in ZooKeeper mode",
}

#: Keys of the rate-limited log lines.
_UNANSWERED: Final = "unanswered"
_FENCED: Final = "fenced"
#: Errors that can pass without intervention, with an explanation.
_TRANSIENT_ERRORS: Final = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "; another process with this node.id is running, or ended a moment ago: "
    "each node needs its own node.id",
}


class BrokerLifecycle:
    """The registration of this broker and its renewal. `epoch` is -1 until the controller has assigned one."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        access: ControllerAccess,
        store: MetadataStore,
        cluster_id: str,
        on_epoch: Callable[[], None],
        unwritable: Callable[[], Sequence[bytes]],
    ) -> None:
        """Creates the lifecycle of one incarnation. `on_epoch` is called when the controller has assigned an epoch to
        it. `unwritable` returns the ids of directories that take no writes for now.
        """
        self._on_epoch = on_epoch
        self._host = host
        self._config = config
        self._access = access
        self._store = store
        self._cluster_id = cluster_id
        self._registration: BrokerRegistrationRequest | None = None
        #: The listeners that the registration names.
        self._endpoints: tuple[Endpoint, ...] = ()
        self._give_up_ms = 0
        self._pause_ms = _REGISTRATION_PAUSE_MS
        self._timer: Timer | None = None
        self._in_flight = False
        self._stopping = False
        self._heartbeats_ended = False
        self._on_ready: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None
        #: Ids of failed directories (KIP-858); every heartbeat contains them.
        self._lost_directories: list[bytes] = []
        self._failure_report_timer: Timer | None = None
        self._unwritable = unwritable
        #: The directories without writes that the last heartbeat reported.
        self._reported_unwritable: Sequence[bytes] = ()
        #: Whether the controller ignored that report, as Apache Kafka's controller does.
        self._is_report_ignored = False
        self._is_amending = False
        self._reports = LimitedReports(host.faults, host.clock)
        #: The time of the last heartbeat response.
        self._answered_ms = 0
        #: Whether the metadata shows this incarnation as fenced; None before it shows this incarnation.
        self._is_fenced: bool | None = None
        self.epoch = -1

    @property
    def unanswered_ms(self) -> int | None:
        """Returns the time after which the controller should have answered a heartbeat; None if it has, or if this
        broker is not registered, or stops.
        """
        if self.epoch < 0 or self._stopping or not self._in_flight:
            return None
        return self._answered_ms + self._config.int_of("broker.heartbeat.interval.ms")

    def start(
        self,
        endpoints: Sequence[Endpoint],
        directories: Sequence[bytes],
        previous_broker_epoch: int,
        on_ready: Callable[[], None] | None,
    ) -> None:
        """Registers the broker. If a controller refuses it permanently, the process ends (`host.faults.fatal`)."""
        self._on_ready = on_ready
        self._endpoints = tuple(endpoints)
        self._registration = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._host.random.uuid(),
            listeners=endpoint_rows(BrokerRegistrationRequest.Listener, endpoints),
            features=feature_rows(BrokerRegistrationRequest.Feature, SUPPORTED_FEATURES),
            rack=self._config.rack,
            log_dirs=sorted(directories),
            previous_broker_epoch=previous_broker_epoch,
        )
        self._give_up_ms = self._host.clock.now_ms() + self._config.int_of("initial.broker.registration.timeout.ms")
        self._register()

    def stop(self, done: Callable[[], None]) -> None:
        """Starts the controlled shutdown; calls `done` once the controller allows the stop, possibly within this call.
        Without `controlled.shutdown.enable` the controller is not asked, and detects the stop like a crash."""
        self._cancel_timer()
        self._stopping = True
        if self.epoch < 0 or not self._config.bool_of("controlled.shutdown.enable"):
            self._heartbeats_ended = True
            done()
            return
        self._on_stopped = done
        if not self._in_flight:
            self._send_heartbeat()

    def directory_failed(self, directory_id: bytes) -> None:
        """Reports a failed directory to the controller immediately. If that fails for `log.dir.failure.timeout.ms`, the
        process ends, because the cluster still considers this broker the leader of partitions that it has lost.
        """
        self._lost_directories.append(directory_id)
        if self._failure_report_timer is None:
            timeout_ms = self._config.int_of("log.dir.failure.timeout.ms")
            self._failure_report_timer = self._host.timers.call_later(timeout_ms, self._on_failure_unreported)
        self._send_heartbeat_soon()

    def end_with(self, directory_ids: Sequence[bytes]) -> None:
        """Reports failed directories to a controller on another node, without waiting for an answer: the process ends
        now, and the cause would be unknown otherwise.
        """
        if self.epoch >= 0 and not self._stopping and not self._access.own.is_active:
            self._lost_directories += directory_ids
            self._send_heartbeat()

    def endpoints_changed(self, endpoints: Sequence[Endpoint]) -> None:
        """Registers this incarnation again if the listeners that it advertises have changed."""
        if self._registration is not None:
            self._registration.listeners = endpoint_rows(BrokerRegistrationRequest.Listener, endpoints)
            self._endpoints = tuple(endpoints)
            self._maybe_amend()

    def unwritable_changed(self) -> None:
        """Reports immediately to the controller that the set of directories without writes has changed."""
        if not self._stopping:
            self._send_heartbeat_soon()

    def connection_lost(self) -> None:
        """Connects to the controller again immediately: it knows by the end of the connection that a process has died.
        Without a connection a death until the next heartbeat would be noticed only when the session ends.
        """
        if not self._stopping:
            self._send_heartbeat_soon()

    def _send_heartbeat_soon(self) -> None:
        """Sends a heartbeat soon, unless one is in flight: the next one then follows its response immediately if there
        is more to report."""
        if self._timer is not None and self.epoch >= 0:
            self._cancel_timer()
            # The call can come from a request that met the fault, so the heartbeat is sent in a later event.
            self._timer = self._host.timers.call_later(0, self._send_heartbeat)

    def _on_failure_unreported(self) -> None:
        if not self._stopping:
            self._host.faults.fatal("cannot report a failed log directory to the controller")

    def _failures_reported(self) -> None:
        if self._failure_report_timer is not None:
            self._failure_report_timer.cancel()
            self._failure_report_timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- registration

    def _register(self) -> None:
        self._timer = None
        assert self._registration is not None, "`start` has built the registration"
        left_ms = max(1, self._give_up_ms - self._host.clock.now_ms())
        self._access.send(self._registration, self._on_registered, timeout_ms=left_ms)

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
                self._send_heartbeat()
                return
        who = f"the controller refuses broker {self._config.node_id}: {code.name}"
        if code in _PERMANENT_ERRORS:
            self._host.faults.fatal(f"{who}; {_PERMANENT_ERRORS[code]}")
        elif self._host.clock.now_ms() >= self._give_up_ms:
            self._host.faults.fatal(f"{who}; giving up after initial.broker.registration.timeout.ms")
        else:
            # The usual cause is DUPLICATE_BROKER_REGISTRATION: the session of the previous incarnation has to end
            # first.
            if self._pause_ms >= _REGISTRATION_PAUSE_MS_MAX:
                left_s = (self._give_up_ms - self._host.clock.now_ms()) // 1000
                self._host.faults.report(f"{who}{_TRANSIENT_ERRORS.get(code, '')}; retrying for {left_s} s")
            self._timer = self._host.timers.call_later(self._pause_ms, self._register)
            self._pause_ms = min(2 * self._pause_ms, _REGISTRATION_PAUSE_MS_MAX)

    def _register_again(self) -> None:
        """Registers as a new incarnation after another one was registered with this node id. The usual cause is a
        delayed request of a dead process: that process sends no heartbeats, so its session ends. If the other process
        is alive, this registration is refused until the timeout."""
        assert self._registration is not None, "`start` has built the registration"
        # This process has been running, so its previous epoch proves no clean shutdown.
        self._registration.previous_broker_epoch = -1
        self._registration.incarnation_id = self._host.random.uuid()
        self._give_up_ms = self._host.clock.now_ms() + self._config.int_of("initial.broker.registration.timeout.ms")
        self._pause_ms = _REGISTRATION_PAUSE_MS
        self._register()

    def _maybe_amend(self) -> None:
        """Registers this incarnation again when `metadata.version` has risen to one that stores directories (KIP-858),
        which the first registration could not do, or when the advertised listeners have changed."""
        image = self._store.image
        own = image.brokers.get(self._config.node_id)
        if own is None or own.epoch != self.epoch:
            return
        has_directories = bool(own.directories) or image.metadata_version < V_3_7_IV2
        if has_directories and sorted(own.endpoints) == sorted(self._endpoints):
            return
        if self._is_amending or self._stopping:
            return
        self._is_amending = True
        assert self._registration is not None, "`start` has built the registration"
        sent = self._endpoints
        self._access.send(self._registration, lambda response: self._on_amended(response, sent))

    def _on_amended(self, response: Message | None, endpoints: Sequence[Endpoint]) -> None:
        self._is_amending = False
        code = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, BrokerRegistrationResponse):
            code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._host.faults.report(f"the controller refused to update broker {self._config.node_id}: {code.name}")
            self._host.timers.call_later(_REGISTRATION_PAUSE_MS_MAX, self._maybe_amend)
        elif endpoints != self._endpoints:
            self._maybe_amend()

    # -- heartbeats

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Sends a heartbeat immediately while a broker is in controlled shutdown: that broker waits until all others
        have reported a metadata offset that includes the change."""
        leaving = any(
            broker is not None and broker.in_controlled_shutdown and not broker.fenced
            for broker in delta.changed_brokers.values()
        )
        if leaving and self.epoch >= 0 and not self._in_flight:
            self._cancel_timer()
            self._timer = self._host.timers.call_later(0, self._send_heartbeat)
        if delta.changed_features or self._config.node_id in delta.changed_brokers:
            self._maybe_amend()
        if self._config.node_id in delta.changed_brokers:
            self._log_fencing(image)

    def _log_fencing(self, image: MetadataImage) -> None:
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

    def _send_heartbeat(self) -> None:
        self._timer = None
        self._in_flight = True
        unwritable = self._reported_unwritable = tuple(self._unwritable())
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._store.image.offset,
            want_fence=bool(unwritable) and self._must_be_fenced(),
            want_shut_down=self._stopping,
            offline_log_dirs=list(self._lost_directories),
            unknown_tags=unwritable_tags(unwritable) if unwritable else (),
        )
        lost = len(self._lost_directories)
        timeout_ms = self._config.int_of("broker.session.timeout.ms") // 2
        self._access.send(request, lambda response: self._on_heartbeat(response, lost), timeout_ms=timeout_ms)

    def _must_be_fenced(self) -> bool:
        """Returns whether this broker must request fencing, because the controller ignores the report of full
        directories. Apache Kafka's broker stops when its disk is full; this one asks to be fenced until it has space,
        if none of its directories can be written and every partition that it leads has another active replica in the
        ISR."""
        image, own_id = self._store.image, self._config.node_id
        own = image.brokers.get(own_id)
        if not self._is_report_ignored or own is None or not set(own.directories) <= set(self._reported_unwritable):
            return False
        active = {broker_id for broker_id, broker in image.brokers.items() if broker.is_active and broker_id != own_id}
        return all(
            partition.leader != own_id or not active.isdisjoint(partition.isr)
            for topic in image.topics_by_name.values()
            for partition in topic.partitions
        )

    def _on_heartbeat(self, response: Message | None, lost: int) -> None:
        self._in_flight = False
        if self._heartbeats_ended:
            return
        answer = response if isinstance(response, BrokerHeartbeatResponse) else None
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(answer.error_code)
        if answer is None:
            self._log_silence()
        else:
            self._answered_ms = self._host.clock.now_ms()
            self._reports.over(_UNANSWERED, "the controller answers heartbeats again")
        if answer is not None and code is not ErrorCode.NONE:
            self._reports.report(code, f"the controller answered a heartbeat with {code.name}")
        elif answer is not None and lost == len(self._lost_directories):
            self._failures_reported()
        was_report_ignored = self._is_report_ignored
        if answer is not None and code is ErrorCode.NONE:
            self._is_report_ignored = bool(self._reported_unwritable) and read_unwritable(answer.unknown_tags) is None
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
        if self._reported_unwritable and was_report_ignored and self._is_report_ignored:
            is_settled = True  # The broker requested the fencing itself.
        elif (
            lost < len(self._lost_directories)
            or self._is_report_ignored
            or tuple(self._unwritable()) != self._reported_unwritable
        ):
            is_settled = False
        interval_ms = self._config.int_of("broker.heartbeat.interval.ms") if is_settled else _EAGER_MS
        if answer is None and is_settled:
            interval_ms = min(interval_ms, _UNANSWERED_MS)
        if self._reported_unwritable and code is not ErrorCode.NONE:
            interval_ms = min(interval_ms, _REPORT_RETRY_MS)
        self._timer = self._host.timers.call_later(interval_ms, self._send_heartbeat)

    def _log_silence(self) -> None:
        """Logs that no heartbeat was answered."""
        leader_id = self._access.leader_id()
        silent_s = (self._host.clock.now_ms() - self._answered_ms) / 1000
        session_s = self._config.int_of("broker.session.timeout.ms") / 1000
        who = f"no response from controller {leader_id}"
        if leader_id < 0:
            who = "no active controller is known, and no heartbeat got a response"
        text = f"{who} for {silent_s:.1f} s; after {session_s:g} s (broker.session.timeout.ms) this broker is fenced"
        self._reports.report(_UNANSWERED, text)
