"""The part of a broker that depends on where the cluster's metadata is: in a metadata quorum, or in ZooKeeper.

    quorum_side.py                the raft node, the KRaft controller, registration and heartbeats
    zookeeper/zookeeper_side.py   the session with ZooKeeper, the registration znode, the requests of the controller

All other code follows the image of `metadata.store`, and is the same in both modes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from barnabas.broker.coordination import Coordinators
from barnabas.broker.peers.broker_channels import BrokerChannels
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.broker.requests.cluster_side import ClusterController, ClusterSide
from barnabas.broker.requests.context import Services
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.journal.journal import ControllerState, Journal, Quorum
from barnabas.metadata.security import Credentials
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.api import Offer
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.replication.moves import Assignments
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.log_manager import LogManager


class SideParts(NamedTuple):
    """The parts of a node that exist before its `MetadataSide` is created."""

    host: Host
    config: BrokerConfig
    area: ReceiveArea
    metadata: MetadataStore
    logs: LogManager
    #: A function that returns the services of handlers, once all parts are connected.
    services: Callable[[], Services]


class ConnectedParts(NamedTuple):
    """The parts that are created after the `MetadataSide`, which uses them."""

    services: Services
    replicas: ReplicaManager
    brokers: BrokerChannels
    coordinators: Coordinators
    journal: Journal


class MetadataSide(ClusterSide, Protocol):
    """The interface with one implementation for each kind of cluster. The broker calls `connect`, `check_directories`,
    `follow`, `open`, `start`, `hand_over` and `close`, in this order.
    """

    @property
    def cluster_id(self) -> str: ...
    @property
    def access(self) -> ControllerAccess:
        """Returns the object for requests to the active controller."""

    @property
    def controller(self) -> ClusterController: ...
    @property
    def assignments(self) -> Assignments: ...
    @property
    def broker_epoch(self) -> int:
        """Returns the epoch of this broker's registration; -1 before it is registered."""

    @property
    def decisions(self) -> Quorum:
        """Returns the source from which the journal reads the decisions of controllers."""

    @property
    def journal_controller(self) -> ControllerState:
        """Returns the controller whose changes the journal writes."""

    def scram_credentials(self) -> Credentials:
        """Returns the SCRAM credentials of users."""

    def connect(self, parts: ConnectedParts) -> None:
        """Connects the parts that were created later."""

    def check_directories(self) -> None:
        """Raises ConfigError if the side needs a log directory that failed when the logs were opened."""

    def follow(self) -> None:
        """Subscribes the replicas and the coordinators to the image, when the logs are open; only on brokers."""

    def open(self) -> None:
        """Begins to receive metadata, possibly within this call."""

    def start(self, on_ready: Callable[[], None] | None, on_open: Callable[[], None]) -> None:
        """Registers with the cluster. `on_open` is called when the broker can open to clients, `on_ready` when clients
        find the broker in the metadata.
        """

    def hand_over(self, done: Callable[[], None]) -> None:
        """Hands over the leaderships of this broker, then calls `done`; the broker no longer opens to clients."""

    def close(self) -> None:
        """Leaves the cluster. It is called after the logs are closed."""

    def early_offers(self, listener: str) -> Mapping[int, Offer] | None:
        """Returns the APIs that a listener serves before the broker opens to clients; later it serves more. Returns
        None for a listener that opens only with the broker.
        """

    def directory_failed(self, directory: str, error: BaseException) -> None:
        """Reports a failed log directory to the cluster; ends the process if it cannot continue without it."""
