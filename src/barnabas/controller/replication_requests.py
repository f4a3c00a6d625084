"""Elections and reassignments on request, the same for every kind of controller."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests import elections, reassignments
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.view import ControllerView
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

R = TypeVar("R")


class Decider(Protocol):
    """The part of a controller that supplies the view for decisions, and proposes the decisions."""

    @property
    def is_active(self) -> bool: ...

    def view(self) -> ControllerView:
        """Returns the input for decisions; only while active."""

    def propose(
        self,
        result: Result[Any],
        reply: Callable[[Any], None] | None = None,
        refused: Callable[[ErrorCode], None] | None = None,
    ) -> bool:
        """Proposes a decision. A caller that passes `reply` must also pass `refused`. Returns False if the store
        refuses the decision.
        """


def decide(
    decider: Decider,
    make: Callable[[ControllerView], Result[R]],
    reply: Callable[[R], None],
    refused: Callable[[ErrorCode], R],
) -> None:
    """Makes and proposes a decision. `reply` receives its response once it is committed, or what `refused` returns:
    for NOT_CONTROLLER if the controller is not active, or for the error of the store.
    """
    if not decider.is_active:
        reply(refused(ErrorCode.NOT_CONTROLLER))
    else:
        decider.propose(make(decider.view()), reply, lambda code: reply(refused(code)))


class ReplicationRequests:
    """Decides about ElectLeaders and AlterPartitionReassignments, and answers ListPartitionReassignments."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def elect_leaders(
        self, request: ElectLeadersRequest, reply: Callable[[ElectLeadersResponse], None], *, actor: str
    ) -> None:
        decide(
            self._decider,
            lambda view: elections.elect_leaders(view, request, actor),
            reply,
            lambda code: elections.refused(request, code),
        )

    def alter_reassignments(
        self,
        request: AlterPartitionReassignmentsRequest,
        reply: Callable[[AlterPartitionReassignmentsResponse], None],
        *,
        actor: str,
    ) -> None:
        decide(
            self._decider,
            lambda view: reassignments.alter_reassignments(view, request, actor),
            reply,
            lambda code: reassignments.refused(request, code),
        )

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse | Generator[int, None, ListPartitionReassignmentsResponse]:
        """Returns the response, or the work in units that makes it."""
        if not self._decider.is_active:
            return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
        return reassignments.list_reassignments(self._decider.view().image, request)
