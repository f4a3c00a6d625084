"""A broker built from a configuration and a host: the composition root, used by `server/` and `simulation/`.

create    formats an empty directory and connects the parts
open      opens the logs, and begins to follow the metadata
start     registers with the cluster; opens for clients when the metadata shows the registration; then clients find
          the broker in the metadata
stop      hands over leaderships, writes checkpoints, records a clean shutdown

Only `sides.py` and its implementations know whether the metadata is in a quorum or in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from barnabas.broker.authorizer import Authorizer
from barnabas.broker.coordination import Coordinators
from barnabas.broker.fetching.fetch_sessions import SessionCache
from barnabas.broker.imitated_users import ImitatedUsers
from barnabas.broker.journal_wiring import make_journal
from barnabas.broker.peers.broker_channels import BrokerChannels
from barnabas.broker.peers.node_tokens import NodeTokens
from barnabas.broker.peers.partition_verification import TransactionVerifier
from barnabas.broker.peers.producer_id_blocks import ProducerIdPool
from barnabas.broker.quorum_side import QuorumSide
from barnabas.broker.quota_following import apply_limits, follow_quotas, make_connection_limits
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.in_flight import ConnectionLog
from barnabas.broker.requests.inner_requests import OwnNode
from barnabas.broker.requests.log_in import ListenerLogIn
from barnabas.broker.requests.memory_budget import MemoryBudget
from barnabas.broker.self_watch import make_self_watch
from barnabas.broker.sides import ConnectedParts, MetadataSide, SideParts
from barnabas.broker.throttling.connection_limits import ConnectionLimits
from barnabas.broker.token_users import TokenUsers
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.common.log_in_settings import has_log_in
from barnabas.common.token_settings import TokenSettings
from barnabas.metadata.image import BROKER_RESOURCE, MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.raft.formatting import ensure_formatted
from barnabas.replication.internal import InternalPartitions
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager, ReplicaPorts
from barnabas.storage.log_manager import LogManager

#: The timeout of a request to the controller that sets no timeout.
_REQUEST_TIMEOUT_MS = 30_000
#: A stopping voter waits up to the maximum for brokers that stop at the same time, and checks at this interval.
_LINGER_MS_MIN = 30
_LINGER_MS_MAX = 3_000
_LINGER_CHECK_MS = 5


class Broker:
    """A broker: the parts of one node, connected once."""

    @classmethod
    def create(
        cls,
        host: Host,
        config: BrokerConfig,
        connection_log: ConnectionLog,
        cluster_id: str | None = None,
        *,
        is_new_cluster: bool = False,
    ) -> Broker:
        """Formats empty directories with `cluster_id` and connects the parts of a node in KRaft mode. Raises
        ConfigError."""
        formatted = ensure_formatted(host, config, cluster_id=cluster_id, is_new_cluster=is_new_cluster)
        return cls(host, config, connection_log, lambda parts: QuorumSide(parts, formatted))

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        connection_log: ConnectionLog,
        make_side: Callable[[SideParts], MetadataSide],
    ) -> None:
        """Connects the parts of the node; writes no file and opens no log or listener, which `open` does."""
        self.host, self.config = host, config
        self._connection_log = connection_log
        self.memory = MemoryBudget.of(host, config)
        self._area = self.memory.area
        self._opened = False
        #: Whether clients are served.
        self._is_let_in = False
        self._dispatchers: list[Dispatcher] = []
        #: The log-ins of each listener that has one.
        self._log_ins: dict[str, list[ListenerLogIn]] = {}
        #: The limits of connections, by listener.
        self.connection_limits = make_connection_limits(config)
        self.metadata = MetadataStore()
        has_authorizer = config.str_of("authorizer.class.name") != ""
        self.authorizer = Authorizer(config, host.clock) if has_authorizer else None
        self.logs = LogManager(host, config)
        self._tokens = NodeTokens(host, config)
        side = make_side(SideParts(host, config, self._area, self.metadata, self.logs, lambda: self.services))
        self.side = side
        ports = ReplicaPorts(side.access.send, self._own_epoch, self._on_replica_event, side.assignments)
        self.replicas = ReplicaManager(host, config, self.logs, ports)
        partitions = InternalPartitions(self.replicas, host.clock)
        self.brokers = BrokerChannels(host, self._area, config, self.metadata, self._make_own_broker)
        producer_ids = ProducerIdPool(side.access, config.node_id, self._own_epoch)
        self.coordinators = Coordinators(
            host, config, self.metadata, self.replicas, partitions, producer_ids, self.brokers
        )
        self.groups, self.transactions = self.coordinators.groups, self.coordinators.transactions
        self.services = self._make_services(producer_ids)
        self.journal = make_journal(self.services, side, partitions)
        self.services.connect_journal(self.journal.waiting)
        self._self_watch = make_self_watch(self.services, self.logs, self._unanswered_heartbeat, self.journal)
        side.connect(ConnectedParts(self.services, self.replicas, self.brokers, self.coordinators, self.journal))

    def _make_services(self, producer_ids: ProducerIdPool) -> Services:
        """Returns the services that handlers use."""
        host, config = self.host, self.config
        return Services(
            host=host,
            config=config,
            cluster_id=self.side.cluster_id,
            node_id=config.node_id,
            metadata=self.metadata,
            side=self.side,
            controller=self.side.controller,
            replicas=self.replicas,
            groups=self.groups,
            transactions=self.transactions,
            fetch_sessions=SessionCache(
                config.int_of("max.incremental.fetch.session.cache.slots"),
                host.random,
                lambda work: self.services.steps.begin(work, lambda _: None),
            ),
            producer_ids=producer_ids,
            access=self.side.access,
            brokers=self.brokers,
            verifier=TransactionVerifier(host, config, self.brokers, self.transactions.partition_for),
            memory=self.memory,
            authorizer=self.authorizer,
        )

    def _make_own_broker(self) -> OwnNode:
        listener = self.config.inter_broker_listener
        return OwnNode(self.services, listener, self.side.offers(listener))

    @property
    def is_in_quorum(self) -> bool:
        """Returns whether the node is in KRaft mode."""
        return isinstance(self.side, QuorumSide)

    @property
    def quorum(self) -> QuorumSide:
        """Returns the quorum's side of a node in KRaft mode."""
        assert isinstance(self.side, QuorumSide), "the node is in ZooKeeper mode"
        return self.side

    def _on_replica_event(self, replica: Partition, what: str, facts: dict[str, int]) -> None:
        self.journal.on_replica_event(*replica.topic_partition, replica.topic_id, what, facts)

    def _unanswered_heartbeat(self) -> int | None:
        return self.quorum.lifecycle.unanswered_ms if self.is_in_quorum else None

    def _own_epoch(self) -> int:
        return self.side.broker_epoch

    # -- life

    def open(self) -> None:
        """Opens the replicas and begins to follow the metadata. Raises ConfigError, StorageFault."""
        self._tokens.start()
        if self.authorizer is not None:
            # The authorizer subscribes first: requests that see a new image are then checked by the rules of that
            # image.
            self.metadata.subscribe(self.authorizer.on_image)
        self.metadata.subscribe(self._on_broker_config)
        if self.config.is_broker:
            self._open_replicas()
        self._opened = True
        follow_quotas(self.services, dict.fromkeys(self.connection_limits.values()))
        self.services.recently_fenced.follow(self.metadata, self.host.clock)
        if self._self_watch is not None:
            self.metadata.subscribe(self._self_watch.on_image)
        self.metadata.subscribe(self.journal.on_image, catch_up=self.journal.on_catch_up_change)
        self.side.open()

    def _open_replicas(self) -> None:
        began_ms = self.host.clock.now_ms()
        self.logs.start(high_watermark_of=self.replicas.high_watermark_of)
        if self._self_watch is not None:
            self._self_watch.opened(began_ms)
        self.side.check_directories()
        self.logs.roots.when_failed(self.side.directory_failed)
        self.replicas.start(self.logs.checkpointed_high_watermarks())
        self.coordinators.listen(self.memory)
        self.side.follow()

    def start(self, on_ready: Callable[[], None] | None = None, on_open: Callable[[], None] | None = None) -> None:
        """Joins the cluster. `on_open` is called, possibly within this call, when the host can open the listeners that
        do not serve from the start (`is_served_at_once`). `on_ready` is called when clients find the broker in the
        metadata."""

        def let_in() -> None:
            self._is_let_in = True
            for dispatcher in self._dispatchers:
                dispatcher.open()
            if on_open is not None:
                on_open()

        self.side.start(on_ready, let_in)

    def stop(self, done: Callable[[], None], release: Callable[[], None] | None = None) -> None:
        """Hands over leaderships while clients are still served, calls `release` (the host closes its listeners),
        stops the coordinators and logs, then calls `done`. For a broker that was never opened, `done` is called
        immediately."""
        if not self._opened:
            if release is not None:
                release()
            done()
            return
        self._opened = False

        def close() -> None:
            if release is not None:
                release()
            self.journal.close()
            if self._self_watch is not None:
                self._self_watch.close()
            self.coordinators.shutdown()
            self.brokers.close()
            self.replicas.close()
            if self.config.is_broker:
                self.logs.shutdown(self.side.broker_epoch)
            self.side.close()
            self._tokens.close()
            self.logs.health.close()
            done()

        self.side.hand_over(close)

    # -- listeners

    def is_served_at_once(self, listener: str) -> bool:
        """Returns whether a listener serves from the beginning, without waiting for `on_open`."""
        return self.side.early_offers(listener) is not None

    def add_listener(self, listener: str) -> ConnectionLimits:
        """Adds a listener for clients while the node runs. Returns the limits of its connections."""
        limits = self.connection_limits[self.config.inter_broker_listener]
        limits.add(listener)
        apply_limits(self.config, limits)
        self.connection_limits[listener] = limits
        return limits

    def remove_listener(self, listener: str) -> None:
        """Removes a listener whose connections are closed."""
        self.connection_limits.pop(listener).remove(listener)
        for log_in in self._log_ins.pop(listener, ()):
            log_in.close()

    def dispatcher(self, listener: str) -> Dispatcher:
        """Returns the dispatcher of one listener. It serves all APIs that this listener offers once the broker is open
        to clients.
        """
        early = self.side.early_offers(listener)
        made = Dispatcher(
            self.services,
            self.side.offers(listener),
            early=None if self._is_let_in else {} if early is None else early,
            area=self._area,
            frame_bytes_max=self.config.int_of("socket.request.max.bytes"),
            log=self._connection_log,
            memory=self.memory,
            log_in=self._log_in(listener),
        )
        if not self._is_let_in:
            self._dispatchers.append(made)
        return made

    def _log_in(self, listener: str) -> ListenerLogIn | None:
        """Returns the log-in of a listener; None if it has none."""
        if not has_log_in(self.config.security_protocol_of(listener)):
            return None
        services = self.services
        made = ListenerLogIn(
            self.host,
            self.config,
            listener,
            self.side.scram_credentials,
            self._imitated_users,
            self._token_users,
            services.log_in_counts,
            services.request_counts.of,
        )
        self._log_ins.setdefault(listener, []).append(made)
        return made

    @cached_property
    def _imitated_users(self) -> ImitatedUsers:
        secret_key = TokenSettings.of(self.config).secret_key
        return ImitatedUsers(secret_key, self.side.cluster_id, self.host.timers)

    @cached_property
    def _token_users(self) -> TokenUsers:
        secret_key = TokenSettings.of(self.config).secret_key
        return TokenUsers(
            secret_key, self.side.cluster_id, lambda: self.metadata.image.security.tokens, self.host.clock
        )

    # -- following the metadata

    def _on_broker_config(self, delta: MetadataDelta, image: MetadataImage) -> None:
        own, default = (BROKER_RESOURCE, str(self.config.node_id)), (BROKER_RESOURCE, "")
        if own in delta.changed_configs or default in delta.changed_configs:
            for problem in self.config.update_dynamic(image.config_of(*own), image.config_of(*default)):
                self.host.faults.report(problem)
