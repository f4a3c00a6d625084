"""The result of a controller decision: the records to commit, the response to send after the commit, and the cause.

A decision is pure: it reads the image and returns a `Result`. Only replaying its records changes state, so a decision
that is never committed leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from barnabas.protocol.message import Message, UnknownTags

if TYPE_CHECKING:
    from barnabas.controller.requests.view import ControllerView

T = TypeVar("T")

#: A metadata record and its version.
Versioned = tuple[Message, int]


class ControllerEvent(Enum):
    """The requests, and its own observations, that the controller acts on. `journal.causes` has a sentence for each.
    The value is also the name of a metadata transaction."""

    REGISTRATION_AMENDED = "BrokerRegistration, amended"
    NEW_INCARNATION = "BrokerRegistration"
    UNCLEAN_INCARNATION = "BrokerRegistration after an unclean shutdown"
    PROCESS_GONE = "its process is gone"
    SESSION_EXPIRED = "session expired"
    FENCED_ON_REQUEST = "fenced on request"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    UNFENCED = "unfenced"
    BROKER_HEARTBEAT = "BrokerHeartbeat"
    REFUSES_WRITES = "takes no writes"
    ACCEPTS_WRITES = "takes writes again"
    ALTER_PARTITION = "AlterPartition"
    ELECT_LEADERS = "ElectLeaders"
    LEADERS_REBALANCED = "leaders rebalanced"
    UNCLEAN_ELECTIONS_ALLOWED = "unclean elections allowed"
    ALTER_PARTITION_REASSIGNMENTS = "AlterPartitionReassignments"
    CREATE_TOPICS = "CreateTopics"
    DELETE_TOPICS = "DeleteTopics"
    CREATE_PARTITIONS = "CreatePartitions"
    ALTER_CONFIGS = "AlterConfigs"
    CREATE_ACLS = "CreateAcls"
    DELETE_ACLS = "DeleteAcls"
    ALTER_CLIENT_QUOTAS = "AlterClientQuotas"
    UPDATE_FEATURES = "UpdateFeatures"
    ALTER_USER_SCRAM_CREDENTIALS = "AlterUserScramCredentials"
    CREATE_DELEGATION_TOKEN = "CreateDelegationToken"
    RENEW_DELEGATION_TOKEN = "RenewDelegationToken"
    EXPIRE_DELEGATION_TOKEN = "ExpireDelegationToken"
    DELEGATION_TOKENS_EXPIRED = "delegation tokens expired"
    UNREGISTER_BROKER = "UnregisterBroker"
    ASSIGN_REPLICAS_TO_DIRS = "AssignReplicasToDirs"
    ACTIVATION = "activation"
    CONTROLLER_REGISTRATION = "ControllerRegistration"
    ALLOCATE_PRODUCER_IDS = "AllocateProducerIds"
    # Events of ZooKeeper mode, where brokers register by themselves, and any program can change a znode.
    ZNODE_REGISTERED = "registered in ZooKeeper"
    ZNODE_SESSION_ENDED = "session with ZooKeeper ended"
    ZNODE_PROCESS_ENDED = "process ended, session with ZooKeeper not"
    ZNODE_CHANGED = "znode changed"


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a metadata change: the event, the actor (a principal, a broker, the controller), and details."""

    event: ControllerEvent
    actor: str
    detail: str = ""
    #: (topic id, partition) -> the tagged fields that its leader sent with its ISR request, undecoded.
    isr_reasons: Mapping[tuple[bytes, int], UnknownTags] = field(default_factory=dict)

    def with_losses(self, losses: Sequence[str]) -> Cause:
        """Returns the cause with the records that its unclean elections possibly lose."""
        return replace(self, detail="; ".join(filter(None, (self.detail, *losses)))) if losses else self


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    records: list[Versioned]
    response: T
    cause: Cause
    #: Makes the remaining decision, on the image with these records, in a later turn of the event loop; None if this is
    #: all. The response is sent when the last of the records are committed.
    rest: Callable[[ControllerView], Result[T]] | None = None


class Portion(NamedTuple):
    """Some of the records of a change of many partitions. The remaining partitions are decided later, on the image with
    these records.
    """

    records: list[Versioned]
    is_last: bool = True


def in_portions(
    view: ControllerView, steps: Sequence[Callable[[ControllerView], Portion]], response: T, cause: Cause
) -> Result[T]:
    """Makes the decisions of the steps in order, up to the first step that leaves partitions to a later portion."""
    records: list[Versioned] = []
    for place, step in enumerate(steps):
        portion = step(view)
        records += portion.records
        if not portion.is_last:
            return Result(records, response, cause, partial(_rest, steps[place:], response, cause))
    return Result(records, response, cause)


def _rest(
    steps: Sequence[Callable[[ControllerView], Portion]], response: T, cause: Cause, view: ControllerView
) -> Result[T]:
    return in_portions(view, steps, response, cause)
