"""A broker built from a configuration and a host: the composition root, used by `server/` and `simulation/`.

create    formats an empty directory and connects the parts
open      opens the logs and the metadata quorum, and follows the metadata
start     registers with the controller; opens for clients when the metadata shows the registration; when the
          controller unfences the broker, clients find it in the metadata
stop      hands over leaderships, writes checkpoints, records a clean shutdown
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.broker.assignments import DirectoryAssignments
from barnabas.broker.coordination import Coordinators
from barnabas.broker.fetching.fetch_sessions import SessionCache
from barnabas.broker.journal_wiring import make_journal
from barnabas.broker.lifecycle import BrokerLifecycle
from barnabas.broker.own_registration import ClientGate, OwnRegistrationFilter
from barnabas.broker.peers.broker_channels import BrokerChannels
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.broker.peers.controller_registrar import ControllerRegistrar
from barnabas.broker.peers.liveness import BrokerLiveness
from barnabas.broker.peers.producer_ids import ProducerIdPool
from barnabas.broker.peers.quorum_peers import QuorumPeers
from barnabas.broker.peers.quorum_watch import QuorumWatch
from barnabas.broker.peers.verification import TransactionVerifier
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.in_flight import ConnectionLog
from barnabas.broker.requests.inner_requests import OwnBroker, OwnController
from barnabas.broker.requests.memory_budget import MemoryBudget
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.controller.kraft.controller import Controller, ControllerListener
from barnabas.metadata.image import BROKER_RESOURCE, MetadataDelta, MetadataImage
from barnabas.metadata.registrations import endpoints_of
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.api import Offer
from barnabas.raft.formatting import Formatted, ensure_formatted
from barnabas.raft.node import RaftNode
from barnabas.replication.internal import InternalPartitions
from barnabas.replication.manager import ReplicaManager, ReplicaPorts
from barnabas.replication.partition import Partition
from barnabas.storage.manager import LogManager

#: The timeout of a request to the controller that sets none of its own.
_ASK_TIMEOUT_MS = 30_000
#: A stopping voter waits up to the maximum for brokers that stop at the same time, and checks at this interval.
_LINGER_MS_MIN = 30
_LINGER_MS_MAX = 3_000
_LINGER_CHECK_MS = 5


def _nothing() -> None:
    return None


class Broker:
    """All parts of one node, connected once. Parts that `process.roles` leaves out exist and stay idle."""

    @classmethod
    def create(
        cls, host: Host, config: BrokerConfig, connection_log: ConnectionLog, cluster_id: str | None = None
    ) -> Broker:
        """Formats empty directories with `cluster_id` and connects the parts. Raises ConfigError."""
        return cls(host, config, connection_log, ensure_formatted(host, config, cluster_id=cluster_id))

    def __init__(self, host: Host, config: BrokerConfig, connection_log: ConnectionLog, formatted: Formatted) -> None:
        """Connects the parts of the node; writes no file and opens no log or listener, which `open` does."""
        self.host, self.config = host, config
        self._connection_log = connection_log
        self.memory = MemoryBudget.of(host, config)
        self._area = self.memory.area
        #: Whether `open` has run, and whether the node has joined the quorum, which a foreign metadata log prevents.
        self._opened = self._joined = False
        self.formatted = formatted
        cluster_id = formatted.cluster_id
        self.metadata = MetadataStore()
        self.logs = LogManager(host, config)
        self._quorum_peers = QuorumPeers(host, self._area, f"raft-client-{config.node_id}")
        self.raft = RaftNode(host, config, self.metadata, formatted, self._quorum_peers, self.logs.health)
        self._watch = QuorumWatch(host, config, self.raft)
        self.controller = Controller(host, config, self.raft, self.metadata, cluster_id)
        leader = (lambda: self.raft.leader_id, self.raft.leader_address)
        self.access = ControllerAccess(host, self._area, f"broker-{config.node_id}", *leader, _ASK_TIMEOUT_MS)
        self.raft.on_leader(self._on_quorum_leader)
        self.lifecycle = BrokerLifecycle(
            host, config, self.access, self.metadata, cluster_id, self._on_epoch, self.logs.roots.refusing
        )
        self.assignments = DirectoryAssignments(host, config.node_id, self.metadata, self._own_epoch, self.access.send)
        ports = ReplicaPorts(self.access.send, self._own_epoch, self._on_replica_event, self.assignments)
        self.replicas = ReplicaManager(host, config, self.logs, ports)
        partitions = InternalPartitions(self.replicas, host.clock)
        identity = (config.node_id, self._own_epoch, lambda: self.controller.is_active)
        self._registration_filter = OwnRegistrationFilter(*identity, self.replicas.on_image)
        self._client_gate = ClientGate(*identity)
        self.brokers = BrokerChannels(host, self._area, config, self.metadata)
        self._registrar = ControllerRegistrar(host, config, self.controller, self.access, self.metadata)
        producer_ids = ProducerIdPool(self.access, config.node_id, self._own_epoch)
        self.coordinators = Coordinators(
            host, config, self.metadata, self.replicas, partitions, producer_ids, self.brokers
        )
        self.groups, self.transactions = self.coordinators.groups, self.coordinators.transactions
        self.services = self._make_services(producer_ids)
        self.access.own = OwnController(self.services)
        self.brokers.own = OwnBroker(self.services)
        self.journal = make_journal(self.services, partitions)
        self.controller.listen(ControllerListener(self.services.liveness.probe_all, self.journal.on_decision))

    def _make_services(self, producer_ids: ProducerIdPool) -> Services:
        """Returns the services that handlers use."""
        host, config = self.host, self.config
        return Services(
            host=host,
            config=config,
            cluster_id=self.formatted.cluster_id,
            node_id=config.node_id,
            metadata=self.metadata,
            raft=self.raft,
            controller=self.controller,
            replicas=self.replicas,
            groups=self.groups,
            transactions=self.transactions,
            fetch_sessions=SessionCache(config.int_of("max.incremental.fetch.session.cache.slots"), host.random),
            producer_ids=producer_ids,
            access=self.access,
            liveness=BrokerLiveness(host, config, self.controller),
            brokers=self.brokers,
            verifier=TransactionVerifier(host, config, self.brokers, self.transactions.partition_for),
            memory=self.memory,
        )

    def _on_replica_event(self, replica: Partition, what: str, facts: dict[str, int]) -> None:
        self.journal.on_replica_event(*replica.topic_partition, replica.topic_id, what, facts)

    def _own_epoch(self) -> int:
        return self.lifecycle.epoch

    # -- life

    def open(self) -> None:
        """Opens the replicas and starts the metadata quorum: everything that serving controllers needs. Raises
        ConfigError, StorageFault.
        """
        self.metadata.subscribe(self._on_broker_config)
        if self.config.is_broker:
            self._open_replicas()
        self._opened = True
        self.services.recently_fenced.follow(self.metadata, self.host.clock)
        self.metadata.subscribe(self.journal.on_image, catch_up=self.journal.on_catch_up_change)
        self.raft.start()
        self._joined = True
        self._watch.start()

    def _on_quorum_leader(self) -> None:
        self.access.on_leader()
        self._watch.on_leader()

    def _open_replicas(self) -> None:
        self.logs.start(high_watermarks=self.replicas.high_watermarks)
        metadata_dir = self.config.metadata_log_dir
        if metadata_dir in self.logs.offline_directories:
            cause = self.logs.roots.cause_of(metadata_dir)
            raise ConfigError(f"{metadata_dir} holds the metadata log and cannot be used: {cause}")
        self.logs.on_directory_failed.append(self._on_directory_failed)
        self.logs.health.on_change.append(self.lifecycle.refusing_changed)
        self.replicas.start(self.logs.checkpointed_high_watermarks())
        self.coordinators.listen(self.memory)
        self.metadata.subscribe(self._registration_filter.on_image)
        self.metadata.subscribe(self.coordinators.on_image)
        self.metadata.subscribe(self.lifecycle.on_image)
        self.metadata.subscribe(self._client_gate.on_image)

    def start(self, on_ready: Callable[[], None] = _nothing, on_open: Callable[[], None] = _nothing) -> None:
        """Joins the cluster. `on_open` is called, possibly within this call, when the host can open the client
        listeners; until then only the controller listeners are open. `on_ready` is called when the controller has
        unfenced the broker, so that clients find it in the metadata."""
        self._registrar.start()
        if not self.config.is_broker:
            on_open()
            on_ready()
            return
        self.lifecycle.start(
            [
                endpoint
                for endpoint in endpoints_of(self.config.advertised_listeners, self.config.advertised_listeners)
                if endpoint.name not in self.config.controller_listener_names
            ],
            [self.logs.roots.id_of(path) for path in self.logs.directories if path not in self.logs.roots.offline],
            self.logs.previous_broker_epoch,
            on_ready,
        )
        self._client_gate.start(self.metadata.image, on_open)

    def _on_epoch(self) -> None:
        """Checks the current image again: it can have shown the registration before the controller's response
        arrived."""

        def check() -> None:
            if self._opened:
                self._registration_filter.check(self.metadata.image)
                self._client_gate.check(self.metadata.image)

        # Runs as an event of its own: the response can arrive within the publication of an image.
        self.host.timers.call_soon(check)

    def stop(self, done: Callable[[], None], release: Callable[[], None] = lambda: None) -> None:
        """Hands over leaderships while clients are still served, calls `release` (the host closes its listeners),
        stops the coordinators and logs, then calls `done`. For a broker that was never opened, `done` is called
        immediately."""
        if not self._opened:
            release()
            done()
            return
        self._opened = False
        self._client_gate.close()
        self._watch.stop()

        def close() -> None:
            release()
            self.journal.close()
            self.coordinators.shutdown()
            self.brokers.close()
            self.assignments.close()
            self.replicas.close()
            if self.config.is_broker:
                self.logs.shutdown(self.lifecycle.epoch)
            self._registrar.stop()
            self.access.close()
            self.raft.stop()
            self._quorum_peers.close()
            self.logs.health.close()
            done()

        self.lifecycle.stop(lambda: self._linger(close))

    def _linger(self, then: Callable[[], None]) -> None:
        """Delays `then` while other brokers are in controlled shutdown, because they can need this voter's vote. The
        minimum delay lets the responses leave that became ready together with this broker's own."""
        if not self.config.is_controller or not self._joined or len(self.raft.voters) < 2:
            then()
            return
        begin_ms = self.host.clock.now_ms()

        def check() -> None:
            leaving = any(
                broker.in_controlled_shutdown and not broker.fenced and broker_id != self.config.node_id
                for broker_id, broker in self.metadata.image.brokers.items()
            )
            if leaving and self.host.clock.now_ms() < begin_ms + _LINGER_MS_MAX:
                self.host.timers.call_later(_LINGER_CHECK_MS, check)
            else:
                then()

        self.host.timers.call_later(_LINGER_MS_MIN, check)

    # -- listeners

    def dispatcher(self, offers: Mapping[int, Offer]) -> Dispatcher:
        """Returns the dispatcher of one listener, which serves the APIs in `offers`."""
        return Dispatcher(
            self.services,
            offers,
            area=self._area,
            frame_bytes_max=self.config.int_of("socket.request.max.bytes"),
            log=self._connection_log,
            memory=self.memory,
        )

    # -- failed directories

    def _on_directory_failed(self, directory: str, error: BaseException) -> None:
        """Ends the process if its last directory or the directory of the metadata log failed, as Kafka does."""
        if directory == self.config.metadata_log_dir:
            self.host.faults.fatal(f"log directory {directory} with the metadata log failed: {error}", error)
        elif self.logs.roots.all_failed:
            self.host.faults.fatal(f"all of log.dirs={','.join(self.logs.directories)} have failed: {error}", error)
        else:
            self.lifecycle.directory_failed(self.logs.roots.id_of(directory))

    # -- following the metadata

    def _on_broker_config(self, delta: MetadataDelta, image: MetadataImage) -> None:
        own, default = (BROKER_RESOURCE, str(self.config.node_id)), (BROKER_RESOURCE, "")
        if own in delta.changed_configs or default in delta.changed_configs:
            for problem in self.config.update_dynamic(image.config_of(*own), image.config_of(*default)):
                self.host.faults.report(problem)
