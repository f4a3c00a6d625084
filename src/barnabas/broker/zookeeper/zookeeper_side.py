"""The side of a broker whose cluster has its metadata in ZooKeeper.

start      registration (`membership.py`); the controller of this process claims /controller if it can
requests   LeaderAndIsr, UpdateMetadata, StopReplica -> image and roles (`controller_feed.py`); before the broker
           opens to clients (`initial_catch_up.py`) it serves nothing else, and before its registration nothing at all:
           until then, requests of the controller are for the last process with this broker's id (G37)
stop       ControlledShutdown, then the end of the session, so that no broker waits for it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.broker.peers.broker_channels import BrokerChannels
from barnabas.broker.peers.controller_access import Address, ControllerAccess
from barnabas.broker.requests.cluster_side import FeatureView
from barnabas.broker.requests.context import RequestContext, ZooKeeperServices
from barnabas.broker.requests.inner_requests import OwnNode
from barnabas.broker.sides import ConnectedParts, SideParts
from barnabas.broker.zookeeper.controller_feed import ControllerFeed
from barnabas.broker.zookeeper.departure import Departure
from barnabas.broker.zookeeper.directory_assignments import UnreportedAssignments
from barnabas.broker.zookeeper.initial_catch_up import InitialCatchUp
from barnabas.broker.zookeeper.membership import Membership
from barnabas.broker.zookeeper.session import ZooKeeperSession
from barnabas.broker.zookeeper.session_counts import SessionCounts
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.reports import LimitedReports
from barnabas.controller.listener import CommitListener
from barnabas.controller.requests.configs import AlterResult, ResourceChange
from barnabas.controller.requests.scram import refused
from barnabas.controller.zookeeper.feature_answers import feature_answers
from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.decisions import strategies
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.security import Credentials
from barnabas.protocol.api import EARLY_ZOOKEEPER_APIS, ZOOKEEPER_APIS, Offer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from barnabas.protocol.peer_security import security_on

_REQUEST_TIMEOUT_MS: Final = 30_000
_NO_CONTROLLER: Final = -1


class _OwnDecisions(NamedTuple):
    """The decisions of this broker's controller, for the journal."""

    controller: ZookeeperController
    voter_ids: tuple[int, ...] = ()

    @property
    def epoch(self) -> int:
        return self.controller.controller_epoch


def _election_strategy(host: Host, config: BrokerConfig) -> NamedStrategy | None:
    """Returns this controller's election strategy. Raises ConfigError."""
    return strategies.strategy_of(config.str_of(strategies.KEY), LimitedReports(host.faults, host.clock))


class ZooKeeperSide:
    """The parts of a broker that communicate with ZooKeeper, and with the controller that ZooKeeper names."""

    def __init__(self, parts: SideParts, session: ZooKeeperSession, cluster_id: str) -> None:
        host, config, area, metadata, logs, services = parts
        self._host, self._config, self._metadata, self._logs = host, config, metadata, logs
        self._store = session.store
        self.cluster_id = cluster_id
        self.controller = ZookeeperController(
            host, config, session.store, self._send_as_controller, cluster_id, _election_strategy(host, config)
        )
        plane = config.str_or_none("control.plane.listener.name")
        self._channels = BrokerChannels(
            host, area, config, self.controller, self._make_own, None if plane is None else plane.upper()
        )
        self._services = services
        self.access = ControllerAccess(
            host,
            area,
            f"broker-{config.node_id}",
            lambda: self.controller.leader_id,
            self._controller_address,
            _REQUEST_TIMEOUT_MS,
            self._make_own,
            security_on(config, config.inter_broker_listener if plane is None else plane.upper()),
        )
        self.assignments = UnreportedAssignments()
        self.decisions = _OwnDecisions(self.controller)
        self.journal_controller = self.controller
        self._catch_up = InitialCatchUp(host.timers, config.node_id)
        #: The APIs that are served before the broker opens to clients: none before the registration.
        self._early_offers: dict[int, Offer] = {}
        self._membership = Membership(
            host, config, session.store, metadata, self.controller, self._catch_up, self._on_registered
        )
        self.acls = self._membership.acl_writes
        self._parts: ConnectedParts | None = None
        self._feed: ControllerFeed | None = None
        self._departure: Departure | None = None
        self._counts = SessionCounts(self._membership)
        self._latency = session.latency
        session.listen(self._counts)

    @property
    def broker_epoch(self) -> int:
        return self._membership.broker_epoch

    def _make_own(self) -> OwnNode:
        return OwnNode(self._services(), self._config.inter_broker_listener, ZOOKEEPER_APIS)

    def _send_as_controller(
        self, broker_id: int, broker_epoch: int, request: Message, reply: Callable[[Message | None], None]
    ) -> None:
        self._channels.send(broker_id, request, reply)

    def _controller_address(self) -> Address | None:
        broker = self._metadata.image.brokers.get(self.controller.leader_id)
        endpoint = None if broker is None else broker.endpoint(self._config.inter_broker_listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    # -- life

    def connect(self, parts: ConnectedParts) -> None:
        self._parts = parts
        feed = self._feed = ControllerFeed(
            self._config.node_id,
            self._metadata,
            parts.replicas,
            self._host.clock,
            lambda: self.broker_epoch,
            lambda known: self._membership.catch_up(known, parts.replicas),
        )
        parts.services.connect_zookeeper(
            ZooKeeperServices(feed, self.controller, self._counts, self._latency, self.controller.gauges)
        )
        self.controller.listen(CommitListener(parts.journal.begin_epoch, parts.journal.on_commit))

    def check_directories(self) -> None:
        """Accepts any failed directory, because the other directories are enough to run."""

    def follow(self) -> None:
        assert self._parts is not None, "`connect` was called before"
        self._metadata.subscribe(self._parts.replicas.on_image)
        self._metadata.subscribe(self._parts.coordinators.on_image)
        self._metadata.subscribe(self._membership.configs.on_image)
        self._metadata.subscribe(self._on_image)

    def open(self) -> None:
        """Does nothing: a broker receives metadata only after it has registered in `start`."""

    def start(self, on_ready: Callable[[], None] | None, on_open: Callable[[], None]) -> None:
        def let_in() -> None:
            on_open()
            if on_ready is not None:
                on_ready()

        self._catch_up.start(let_in)
        self._membership.start()

    def _on_registered(self) -> None:
        self._early_offers.update(EARLY_ZOOKEEPER_APIS)

    def hand_over(self, done: Callable[[], None]) -> None:
        """Hands over the leaderships, then ends the session, so that the others see immediately that this broker is
        gone."""
        self._catch_up.close()

        def leave() -> None:
            self._membership.leave()
            self._store.close(done)

        if self.broker_epoch >= 0 and self._config.bool_of("controlled.shutdown.enable"):
            self._departure = Departure(
                self._host, self._config, self.access, self.broker_epoch, self._is_last_broker, leave
            )
            self._departure.start()
        else:
            leave()

    def _is_last_broker(self) -> bool:
        return list(self._metadata.image.brokers) == [self._config.node_id]

    def close(self) -> None:
        self._channels.close()
        self.access.close()

    def directory_failed(self, directory: str, error: BaseException) -> None:
        """Reports a failed directory to the controller; the process ends if it was the last one."""
        logs = self._logs
        if logs.roots.all_failed:
            self._host.faults.fatal(f"all of log.dirs={','.join(logs.directories)} have failed: {error}", error)
        else:
            self._membership.report_failed_directory()

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self._parts is not None, "`connect` was called before"
        self._catch_up.check(image)
        if self._departure is not None:
            self._departure.check()
        if self._feed is not None and self._feed.is_of_kafka:
            self._parts.journal.on_unexplained(delta, image, self._feed.controller_id)

    # -- what clients see

    def features(self) -> FeatureView:
        """Returns an empty view, because ZooKeeper mode has `inter.broker.protocol.version` instead of features."""
        return FeatureView((), {}, self._membership.feature_epoch)

    def shown_controller(self, brokers: Sequence[int]) -> int:
        """Returns the broker that is the controller: no other one accepts admin requests."""
        leader_id = self.controller.leader_id
        return leader_id if leader_id in brokers else _NO_CONTROLLER

    def change_configs(
        self,
        context: RequestContext,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        changes: Sequence[ResourceChange],
        reply: Callable[[Sequence[AlterResult] | None], None],
        *,
        replace: bool,
    ) -> None:
        """Decides about the changes and writes them, as any broker can."""
        self._membership.writes.change(
            changes, context.principal, reply, replace=replace, validate_only=request.validate_only
        )

    def alter_client_quotas(self, context: RequestContext, request: AlterClientQuotasRequest) -> None:
        """Decides about the changes and writes them, as any broker can."""
        self._membership.quota_writes.alter(request, context.principal, context.reply)

    def alter_user_scram_credentials(self, context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
        """Decides about the changes and writes them, as only the controller can."""
        if self.controller.is_active:
            self._membership.scram_writes.alter(request, context.principal, context.reply)
        else:
            context.reply(refused(request, ErrorCode.NOT_CONTROLLER))

    def update_features(self, context: RequestContext, request: UpdateFeaturesRequest) -> None:
        """Refuses each update, because ZooKeeper mode has no features."""
        context.reply(feature_answers(request, context.api_version, is_active=self.controller.is_active))

    def scram_credentials(self) -> Credentials:
        return self._metadata.image.security.scram

    def offers(self, listener: str) -> Mapping[int, Offer]:
        return ZOOKEEPER_APIS

    def early_offers(self, listener: str) -> Mapping[int, Offer] | None:
        return self._early_offers
