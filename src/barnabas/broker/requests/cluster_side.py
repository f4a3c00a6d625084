"""The interface of the cluster for handlers, the same for a metadata quorum and for ZooKeeper.

One interface covers the controller's decisions, another one the differences between the modes that clients can see, so
that each handler serves both modes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from barnabas.broker.requests.request_context import RequestContext
    from barnabas.common.errors import ErrorCode
    from barnabas.controller.requests.configs import AlterResult, ResourceChange
    from barnabas.controller.requests.topics import Permit
    from barnabas.metadata.registrations import FeatureRange
    from barnabas.protocol.api import Offer
    from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
    from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
    from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

    AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest
    from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.update_features import UpdateFeaturesRequest

T = TypeVar("T")
Reply = Callable[[T], None]


class FeatureView(NamedTuple):
    """The features of ApiVersions responses: the supported ranges, the finalized levels and their epoch."""

    supported: Sequence[FeatureRange]
    finalized: Mapping[str, int]
    epoch: int


class LeaderElections(Protocol):
    """The controller's decisions about elections and reassignments. A controller that is not active replies
    NOT_CONTROLLER.
    """

    def elect_leaders(
        self, request: ElectLeadersRequest, reply: Reply[ElectLeadersResponse], *, actor: str
    ) -> None: ...

    def alter_reassignments(
        self,
        request: AlterPartitionReassignmentsRequest,
        reply: Reply[AlterPartitionReassignmentsResponse],
        *,
        actor: str,
    ) -> None: ...

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse | Generator[int, None, ListPartitionReassignmentsResponse]: ...


class ClusterController(Protocol):
    """The controller of this process. If it is not active, it replies NOT_CONTROLLER to everything."""

    @property
    def is_active(self) -> bool: ...
    @property
    def leader_id(self) -> int:
        """Returns the id of the active controller, as far as this node knows; -1 if unknown."""

    @property
    def unclean_election_count(self) -> int:
        """Returns the number of unclean elections that this controller has decided since the start of the process."""

    @property
    def replication(self) -> LeaderElections: ...

    def create_topics(
        self,
        request: CreateTopicsRequest,
        reply: Reply[CreateTopicsResponse],
        *,
        actor: str = ...,
        permit: Permit | None = ...,
    ) -> None: ...

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        reply: Reply[DeleteTopicsResponse],
        *,
        actor: str = ...,
        permit: Permit | None = ...,
    ) -> None: ...

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        reply: Reply[CreatePartitionsResponse],
        *,
        actor: str = ...,
        permit: Permit | None = ...,
    ) -> None: ...

    def alter_partition(
        self, request: AlterPartitionRequest, reply: Reply[AlterPartitionResponse], *, version: int = ...
    ) -> None: ...

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, reply: Callable[[int, int, ErrorCode], None]
    ) -> None: ...


class AclChanges(Protocol):
    """The changes of the authorizer's rules."""

    def create(self, request: CreateAclsRequest, reply: Reply[CreateAclsResponse], *, actor: str) -> None: ...

    def delete(self, request: DeleteAclsRequest, reply: Reply[DeleteAclsResponse], *, actor: str) -> None: ...


class ClusterSide(Protocol):
    """The interface of the features that clients see and that differ between KRaft and ZooKeeper mode."""

    @property
    def acls(self) -> AclChanges:
        """Decides changes of the authorizer's rules; used only if there is an authorizer."""

    def features(self) -> FeatureView: ...

    def shown_controller(self, brokers: Sequence[int]) -> int:
        """Returns the id of the broker to which clients send admin requests, one of those that the response lists; or
        -1.
        """

    def change_configs(
        self,
        context: RequestContext,
        request: AlterRequest,
        changes: Sequence[ResourceChange],
        reply: Callable[[Sequence[AlterResult] | None], None],
        *,
        replace: bool,
    ) -> None:
        """Requests a decision about configuration changes that this broker has already checked. `changes` are those of
        `request`; `reply` receives a result for each, or None if no answer comes in time.
        """

    def alter_client_quotas(self, context: RequestContext, request: AlterClientQuotasRequest) -> None:
        """Obtains a decision about changes of quotas, and answers the request."""

    def alter_user_scram_credentials(self, context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
        """Obtains a decision about changes of SCRAM credentials, and answers the request."""

    def update_features(self, context: RequestContext, request: UpdateFeaturesRequest) -> None:
        """Requests a decision about the change of feature levels, and answers the client's request."""

    def offers(self, listener: str) -> Mapping[int, Offer]:
        """Returns the APIs that a listener offers."""
