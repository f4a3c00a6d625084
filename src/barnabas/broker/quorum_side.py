"""The quorum's side of a node: the raft node, the KRaft controller, registration and heartbeats (KRaft mode)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

from barnabas.broker.assignments import DirectoryAssignments
from barnabas.broker.lifecycle import BrokerLifecycle
from barnabas.broker.own_registration import ClientGate, OwnRegistrationFilter
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.broker.peers.controller_registrar import ControllerRegistrar
from barnabas.broker.peers.liveness_probe import BrokerLiveness
from barnabas.broker.peers.quorum_peers import QuorumPeers
from barnabas.broker.peers.quorum_watch import QuorumWatch
from barnabas.broker.requests.cluster_side import FeatureView
from barnabas.broker.requests.context import QuorumServices, RequestContext
from barnabas.broker.requests.forwarding import forward_message
from barnabas.broker.requests.inner_requests import OwnNode
from barnabas.broker.sides import ConnectedParts, SideParts
from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import LISTENER_KEYS
from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.common.host import Host
from barnabas.common.log_in_settings import credentials_of, mechanism_to_log_in
from barnabas.common.reports import LimitedReports
from barnabas.controller.kraft.controller import Controller
from barnabas.controller.listener import ControllerListener
from barnabas.controller.requests.configs import AlterResult, ResourceChange
from barnabas.decisions import strategies
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from barnabas.metadata.registrations import Endpoint, endpoints_of
from barnabas.metadata.security import Credentials, SecurityImage
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, Offer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.records_metadata import UserScramCredentialRecord
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from barnabas.protocol.peer_security import controller_security
from barnabas.protocol.sasl.mechanism import SCRAM
from barnabas.raft.formatting import Formatted
from barnabas.raft.node import RaftNode

_NO_CONTROLLER: Final = -1
#: The timeout of a request to the controller that sets no timeout.
_REQUEST_TIMEOUT_MS: Final = 30_000
#: A stopping voter waits up to the maximum for brokers that stop at the same time, and checks at this interval.
_LINGER_MS_MIN: Final = 30
_LINGER_MS_MAX: Final = 3_000
_LINGER_CHECK_MS: Final = 5


def _election_strategy(host: Host, config: BrokerConfig) -> NamedStrategy | None:
    """Returns this controller's election strategy. Raises ConfigError."""
    name = config.str_of(strategies.KEY) if config.is_controller else strategies.ASSIGNMENT
    return strategies.strategy_of(name, LimitedReports(host.faults, host.clock))


class QuorumSide:
    """The parts of a node that take part in a metadata quorum, or follow it. Those that `process.roles` leaves out
    exist and stay idle."""

    def __init__(self, parts: SideParts, formatted: Formatted) -> None:
        host, config, area, metadata, logs, services = parts
        self._host, self._config, self._metadata, self._logs = host, config, metadata, logs
        self.formatted = formatted
        self.cluster_id = formatted.cluster_id
        self._peers = QuorumPeers(host, area, f"raft-client-{config.node_id}", controller_security(config))
        self.raft = RaftNode(host, config, metadata, formatted, self._peers, logs.health)
        self._watch = QuorumWatch(host, config, self.raft)
        strategy = _election_strategy(host, config)
        self.controller = Controller(host, config, self.raft, metadata, formatted.cluster_id, strategy)
        self.acls = self.controller.acls
        self.journal_controller = self.controller
        self.access = ControllerAccess(
            host,
            area,
            f"broker-{config.node_id}",
            lambda: self.raft.leader_id,
            self.raft.leader_address,
            _REQUEST_TIMEOUT_MS,
            lambda: OwnNode(services(), config.controller_listener_names[0], CONTROLLER_APIS),
            controller_security(config),
        )
        self.raft.on_leader(self._on_leader)
        self.raft.on_disk_failed(self._on_disk_failed)
        self.lifecycle = BrokerLifecycle(
            host, config, self.access, metadata, formatted.cluster_id, self._on_epoch, logs.roots.unwritable
        )

        self.access.when_lost(self.lifecycle.connection_lost)

        def own_epoch() -> int:
            return self.lifecycle.epoch

        self.assignments = DirectoryAssignments(host, config.node_id, metadata, own_epoch, self.access.send)
        self.services = QuorumServices(self.raft, self.controller, BrokerLiveness(host, config, self.controller))
        self._registrar = ControllerRegistrar(host, config, self.controller, self.access, metadata)
        self._client_gate = ClientGate(config.node_id, own_epoch, lambda: self.controller.is_active)
        self._registration_filter: OwnRegistrationFilter | None = None
        self._parts: ConnectedParts | None = None
        #: Whether `open` has completed: the node takes part in the quorum, which a foreign metadata log prevents.
        self._has_joined = False
        self._is_running = False

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.epoch

    @property
    def is_to_open(self) -> bool:
        """Returns whether client listeners can open now and have not been opened."""
        return self._client_gate.is_due(self._metadata.image)

    def scram_credentials(self) -> Credentials:
        """Returns the SCRAM credentials: those of the metadata. Nodes have to log in to each other before they know the
        metadata; until then, those that the directory was formatted with apply.
        """
        image = self._metadata.image
        return image.security.scram if image.metadata_version else self._formatted_credentials

    @cached_property
    def _formatted_credentials(self) -> Credentials:
        security = SecurityImage()
        for record, _ in self.raft.bootstrap_records():
            if isinstance(record, UserScramCredentialRecord):
                security = security.replay_scram(record)
        return security.scram

    def _check_own_credentials(self) -> None:
        """Raises ConfigError if the other voters cannot log in to this one: it would learn their credentials from the
        metadata, which needs a majority of the voters.
        """
        config, name = self._config, self._config.controller_listener_names[0]
        mechanism = mechanism_to_log_in(config, name)
        voters = self.raft.voter_ids
        if mechanism not in SCRAM or config.node_id not in voters or len(voters) == 1:
            return
        user, _ = credentials_of(config, name, mechanism)
        if (SCRAM[mechanism][0], user) not in self.scram_credentials():
            raise ConfigError(
                f"sasl.mechanism.controller.protocol={mechanism} cannot work: {config.metadata_log_dir} has "
                f"no credential of {user}; format each controller with --add-scram, or use PLAIN"
            )

    @property
    def decisions(self) -> RaftNode:
        return self.raft

    # -- life

    def connect(self, parts: ConnectedParts) -> None:
        self._registration_filter = OwnRegistrationFilter(
            self._config.node_id,
            lambda: self.lifecycle.epoch,
            lambda: self.controller.is_active,
            parts.replicas.on_image,
        )
        self._parts = parts
        parts.services.connect_quorum(self.services)
        self.controller.listen(ControllerListener(self.services.liveness.probe_all, parts.journal.on_decision))

    def check_directories(self) -> None:
        metadata_dir = self._config.metadata_log_dir
        if metadata_dir in self._logs.offline_directories:
            cause = self._logs.roots.cause_of(metadata_dir)
            raise ConfigError(f"{metadata_dir} holds the metadata log and cannot be used: {cause}")

    def follow(self) -> None:
        assert self._parts is not None, "`connect` was called before"
        assert self._registration_filter is not None, "`connect` was called before"
        self._logs.health.when_changed(self.lifecycle.unwritable_changed)
        self._metadata.subscribe(self._registration_filter.on_image)
        self._metadata.subscribe(self._parts.coordinators.on_image)
        self._metadata.subscribe(self.lifecycle.on_image)
        self._config.subscribe(self._on_config)
        self._metadata.subscribe(self._client_gate.on_image)

    def open(self) -> None:
        self.raft.start()
        self._check_own_credentials()
        self._has_joined = True
        self._watch.start()

    def start(self, on_ready: Callable[[], None] | None, on_open: Callable[[], None]) -> None:
        """Registers with the active controller. The broker opens to clients when the metadata shows the registration;
        clients find it in the metadata when the controller has unfenced it.
        """
        self._is_running = True
        self._registrar.start()
        config = self._config
        if not config.is_broker:
            on_open()
            if on_ready is not None:
                on_ready()
            return
        self.lifecycle.start(
            self._endpoints(),
            [self._logs.roots.id_of(path) for path in self._logs.directories if path not in self._logs.roots.offline],
            self._logs.previous_broker_epoch,
            on_ready,
        )
        self._client_gate.start(self._metadata.image, on_open)

    def _endpoints(self) -> list[Endpoint]:
        """Returns the listeners that this broker advertises."""
        config = self._config
        return [
            endpoint
            for endpoint in endpoints_of(config.advertised_listeners, config.advertised_listeners)
            if endpoint.name not in config.controller_listener_names
        ]

    def _on_config(self, changed: frozenset[str]) -> None:
        if not changed.isdisjoint(LISTENER_KEYS):
            self.lifecycle.endpoints_changed(self._endpoints())

    def _on_epoch(self) -> None:
        """Checks the current image again: it may have shown the registration before the controller's response
        arrived.
        """

        def check() -> None:
            if self._is_running and self._registration_filter is not None:
                self._registration_filter.check(self._metadata.image)
                self._client_gate.check(self._metadata.image)

        # Runs in a separate event: the response can arrive within the publication of an image.
        self._host.timers.call_soon(check)

    def _on_leader(self) -> None:
        self.access.on_leader()
        self._watch.on_leader()

    def hand_over(self, done: Callable[[], None]) -> None:
        self._is_running = False
        self._client_gate.close()
        self._watch.stop()
        self.lifecycle.stop(lambda: self._linger(done))

    def close(self) -> None:
        self.assignments.close()
        self._registrar.stop()
        self.access.close()
        self.raft.stop()
        self._peers.close()

    def _linger(self, then: Callable[[], None]) -> None:
        """Delays `then` while other brokers are in controlled shutdown, because they can need this voter's vote. The
        minimum delay lets responses that became ready together with this broker's own be sent.
        """
        if not self._config.is_controller or not self._has_joined or len(self.raft.voters) < 2:
            then()
            return
        begin_ms = self._host.clock.now_ms()

        def check() -> None:
            leaving = any(
                broker.in_controlled_shutdown and not broker.fenced and broker_id != self._config.node_id
                for broker_id, broker in self._metadata.image.brokers.items()
            )
            if leaving and self._host.clock.now_ms() < begin_ms + _LINGER_MS_MAX:
                self._host.timers.call_later(_LINGER_CHECK_MS, check)
            else:
                then()

        self._host.timers.call_later(_LINGER_MS_MIN, check)

    def directory_failed(self, directory: str, error: BaseException) -> None:
        """Reports a failed directory to the controller. As in Kafka, the process ends if the directory has the metadata
        log, or was the last one.
        """
        faults, logs = self._host.faults, self._logs
        if directory == self._config.metadata_log_dir or logs.roots.all_failed:
            self._on_disk_failed()
        if directory == self._config.metadata_log_dir:
            faults.fatal(f"log directory {directory} with the metadata log failed: {error}", error)
        elif logs.roots.all_failed:
            faults.fatal(f"all of log.dirs={','.join(logs.directories)} have failed: {error}", error)
        else:
            self.lifecycle.directory_failed(logs.roots.id_of(directory))

    def _on_disk_failed(self) -> None:
        roots, metadata_directory = self._logs.roots, self._config.metadata_log_dir
        failed = {*roots.offline, *({metadata_directory} & set(roots.paths))}
        self.lifecycle.end_with([roots.id_of(path) for path in sorted(failed)])

    # -- what clients see

    def features(self) -> FeatureView:
        image = self._metadata.image
        levels = {KRAFT_VERSION: self.controller.kraft_version, **image.features}
        return FeatureView(SUPPORTED_FEATURES, levels, image.offset)

    def shown_controller(self, brokers: Sequence[int]) -> int:
        """Returns a random broker, which forwards admin requests to the active controller (KIP-631)."""
        return brokers[self._host.random.below(len(brokers))] if brokers else _NO_CONTROLLER

    def change_configs(
        self,
        context: RequestContext,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        changes: Sequence[ResourceChange],
        reply: Callable[[Sequence[AlterResult] | None], None],
        *,
        replace: bool,
    ) -> None:
        """Forwards the request to the active controller."""

        def answered(response: Message | None) -> None:
            if isinstance(response, AlterConfigsResponse | IncrementalAlterConfigsResponse):
                reply([(ErrorCode(row.error_code), row.error_message) for row in response.responses])
            else:
                reply(None)

        forward_message(self.access, context, request, answered)

    def alter_client_quotas(self, context: RequestContext, request: AlterClientQuotasRequest) -> None:
        self.controller.quotas.alter(request, context.reply, actor=context.principal)

    def alter_user_scram_credentials(self, context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
        self.controller.alter_user_scram_credentials(request, context.reply, actor=context.principal)

    def update_features(self, context: RequestContext, request: UpdateFeaturesRequest) -> None:
        self.controller.update_features(request, context.api_version, context.reply, actor=context.principal)

    def offers(self, listener: str) -> Mapping[int, Offer]:
        return CONTROLLER_APIS if listener in self._config.controller_listener_names else BROKER_APIS

    def early_offers(self, listener: str) -> Mapping[int, Offer] | None:
        return CONTROLLER_APIS if listener in self._config.controller_listener_names else None
