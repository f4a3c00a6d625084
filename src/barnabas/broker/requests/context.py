"""The interface of a handler: the request's context with its `reply`, and the broker's services.

A handler module in `broker/handlers/` has one function

    def handle(context: RequestContext, request: XRequest, services: Services) -> XResponse | Work | None

It returns the response, or returns None and calls `context.reply(response)` exactly once later. It never waits. A
handler whose work can be long is a generator that returns one of these (`steps.py`): it starts immediately, and
continues in later turns of the loop if it does not finish in this one. APIs that decode their requests themselves have
`handle_raw` instead (`dispatch.py`). Two more attributes are needed only by APIs whose requests have many rows:

    ERROR_ROWS    the rows of an error response, if it has any (`error_responses.py`)
    PIECES        how a request of thousands of rows is divided, so that each turn serves a few (`pieces.py`)

Views into the request (records) are valid only until `handle` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.broker.recently_fenced import RecentlyFenced
from barnabas.broker.requests.log_in_counts import LogInCounts
from barnabas.broker.requests.log_in_turns import LogInTurns
from barnabas.broker.requests.request_context import RequestContext as RequestContext
from barnabas.broker.requests.request_counts import RequestCounts
from barnabas.broker.requests.steps import Steps
from barnabas.broker.requests.turn_output import TurnOutput

if TYPE_CHECKING:
    from barnabas.broker.authorizer import Authorizer
    from barnabas.broker.fetching.fetch_sessions import SessionCache
    from barnabas.broker.peers.broker_channels import BrokerChannels
    from barnabas.broker.peers.controller_access import ControllerAccess
    from barnabas.broker.peers.liveness_probe import BrokerLiveness
    from barnabas.broker.peers.partition_verification import TransactionVerifier
    from barnabas.broker.peers.producer_id_blocks import ProducerIdPool
    from barnabas.broker.requests.cluster_side import ClusterController, ClusterSide, FeatureView
    from barnabas.broker.requests.memory_budget import MemoryBudget
    from barnabas.broker.throttling.client_throttles import ClientThrottles
    from barnabas.broker.zookeeper.controller_feed import ControllerFeed
    from barnabas.broker.zookeeper.session_counts import SessionCounts
    from barnabas.common.config import BrokerConfig
    from barnabas.common.host import Host
    from barnabas.common.metrics import TimeBuckets
    from barnabas.controller.kraft.controller import Controller
    from barnabas.controller.zookeeper.gauges import ControllerGauges
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.metadata.store import MetadataStore
    from barnabas.protocol.api import Offer
    from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
    from barnabas.raft.node import RaftNode
    from barnabas.replication.replica_manager import ReplicaManager


class QuorumServices(NamedTuple):
    """The parts of a node in KRaft mode, for the APIs that only KRaft has."""

    raft: RaftNode
    controller: Controller
    liveness: BrokerLiveness


class ShutdownController(Protocol):
    """The part of a controller in ZooKeeper mode that has no counterpart in KRaft mode."""

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, reply: Callable[[ControlledShutdownResponse], None]
    ) -> None: ...


class EncodedVersions(NamedTuple):
    """An ApiVersions response without its header, and what it was made of."""

    offers: Mapping[int, Offer]
    features: FeatureView
    body: bytes


class ZooKeeperServices(NamedTuple):
    """The parts of a broker in ZooKeeper mode, for the APIs that only this mode has."""

    feed: ControllerFeed
    controller: ShutdownController
    sessions: SessionCounts
    #: The times of the requests to ZooKeeper.
    latency: TimeBuckets
    gauges: ControllerGauges


@dataclass(slots=True)
class Services:
    """The broker's parts that handlers use."""

    host: Host
    config: BrokerConfig
    cluster_id: str
    node_id: int
    metadata: MetadataStore
    side: ClusterSide
    controller: ClusterController
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetch_sessions: SessionCache
    producer_ids: ProducerIdPool
    access: ControllerAccess
    #: Channels to the other brokers of the cluster, and to this one.
    brokers: BrokerChannels
    verifier: TransactionVerifier
    #: The budget for the memory that clients can make this process use.
    memory: MemoryBudget
    #: The authorizer; None if every client may do everything.
    authorizer: Authorizer | None = None
    request_counts: RequestCounts = field(default_factory=RequestCounts)
    log_in_counts: LogInCounts = field(default_factory=LogInCounts)
    #: The rates of clients with quotas; None while the cluster has no quotas.
    throttles: ClientThrottles | None = None
    recently_fenced: RecentlyFenced = field(default_factory=RecentlyFenced)
    #: Names of topics whose creation this broker has requested on behalf of clients.
    topics_in_creation: set[str] = field(default_factory=set)
    #: The ApiVersions responses by listener and version.
    encoded_versions: dict[tuple[str, int], EncodedVersions] = field(default_factory=dict, init=False)
    _quorum: QuorumServices | None = field(default=None, init=False)
    _zookeeper: ZooKeeperServices | None = field(default=None, init=False)
    #: Returns the events that this broker has not written to the journal yet, as a record batch.
    waiting_events: Callable[[], bytes] = field(default=bytes, init=False)
    #: The queue of long work.
    steps: Steps = field(init=False)
    turn_output: TurnOutput = field(init=False)
    log_in_turns: LogInTurns = field(init=False)

    def __post_init__(self) -> None:
        self.steps = Steps(self.host.timers, self.host.clock)
        self.turn_output = TurnOutput()
        self.log_in_turns = LogInTurns(self.host.timers.call_soon)
        self.memory.count_bytes_of(lambda: self.steps.held_bytes)

    @property
    def rules_version(self) -> int:
        """Returns a number that changes with each change of the rules; the same one always without an authorizer."""
        return 0 if self.authorizer is None else self.authorizer.version

    @property
    def quorum(self) -> QuorumServices:
        """Returns the parts of KRaft mode. APIs that use them are not offered in ZooKeeper mode."""
        assert self._quorum is not None, "only in KRaft mode"
        return self._quorum

    def connect_quorum(self, quorum: QuorumServices) -> None:
        self._quorum = quorum

    def connect_journal(self, waiting_events: Callable[[], bytes]) -> None:
        self.waiting_events = waiting_events

    @property
    def zookeeper(self) -> ZooKeeperServices:
        """Returns the parts of ZooKeeper mode. APIs that use them are offered only in this mode."""
        assert self._zookeeper is not None, "only in ZooKeeper mode"
        return self._zookeeper

    def connect_zookeeper(self, zookeeper: ZooKeeperServices) -> None:
        self._zookeeper = zookeeper
