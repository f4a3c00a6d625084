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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.recently_fenced import RecentlyFenced
from barnabas.broker.requests.request_counts import RequestCounts
from barnabas.broker.requests.steps import Steps
from barnabas.broker.requests.turn_output import TurnOutput

if TYPE_CHECKING:
    from barnabas.broker.fetching.fetch_sessions import SessionCache
    from barnabas.broker.peers.broker_channels import BrokerChannels
    from barnabas.broker.peers.controller_access import ControllerAccess
    from barnabas.broker.peers.liveness import BrokerLiveness
    from barnabas.broker.peers.producer_ids import ProducerIdPool
    from barnabas.broker.peers.verification import TransactionVerifier
    from barnabas.broker.requests.memory_budget import MemoryBudget
    from barnabas.common.config import BrokerConfig
    from barnabas.common.host import Host
    from barnabas.controller.kraft.controller import Controller
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.metadata.store import MetadataStore
    from barnabas.protocol.message import Message
    from barnabas.raft.node import RaftNode
    from barnabas.replication.manager import ReplicaManager


class RequestContext(Protocol):
    """One request in flight."""

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str:
        """The address of the client, without port, as Kafka shows it: "/127.0.0.1"."""

    @property
    def listener(self) -> str:
        """The name of the listener that the request arrived on."""

    @property
    def principal(self) -> str:
        """The principal of the client: always "User:ANONYMOUS", as there is no authentication."""

    @property
    def now_ms(self) -> int:
        """The monotonic time at which the request was read."""

    def reply(self, response: Message) -> None:
        """Sends the response, exactly once, if `handle` returns None: later, or during the call of `handle`."""

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """Sets the function to call when the client's connection closes, in place of an earlier one. It is never called
        for a request from within this process."""


@dataclass(slots=True)
class Services:
    """The broker's parts that handlers use."""

    host: Host
    config: BrokerConfig
    cluster_id: str
    node_id: int
    metadata: MetadataStore
    raft: RaftNode
    controller: Controller
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetch_sessions: SessionCache
    producer_ids: ProducerIdPool
    access: ControllerAccess
    liveness: BrokerLiveness
    #: Channels to the other brokers of the cluster, and to this one.
    brokers: BrokerChannels
    verifier: TransactionVerifier
    #: The memory that clients can make this process hold.
    memory: MemoryBudget
    request_counts: RequestCounts = field(default_factory=RequestCounts)
    recently_fenced: RecentlyFenced = field(default_factory=RecentlyFenced)
    #: Names of topics whose creation this broker has requested on behalf of clients.
    topics_in_creation: set[str] = field(default_factory=set)
    #: The queue of long work.
    steps: Steps = field(init=False)
    turn_output: TurnOutput = field(init=False)

    def __post_init__(self) -> None:
        self.steps = Steps(self.host.timers, self.host.clock)
        self.turn_output = TurnOutput()
        self.memory.others.append(lambda: self.steps.held_bytes)
