"""Elections and reassignments on request, the same for every kind of controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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


class ReplicationRequests:
    """Decides about ElectLeaders and AlterPartitionReassignments, and answers ListPartitionReassignments."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def elect_leaders(
        self, request: ElectLeadersRequest, reply: Callable[[ElectLeadersResponse], None], *, actor: str
    ) -> None:
        if not self._decider.is_active:
            reply(elections.refused(request, ErrorCode.NOT_CONTROLLER))
            return
        self._decider.propose(
            elections.elect_leaders(self._decider.view(), request, actor),
            reply,
            lambda code: reply(elections.refused(request, code)),
        )

    def alter_reassignments(
        self,
        request: AlterPartitionReassignmentsRequest,
        reply: Callable[[AlterPartitionReassignmentsResponse], None],
        *,
        actor: str,
    ) -> None:
        if not self._decider.is_active:
            reply(reassignments.refused(request, ErrorCode.NOT_CONTROLLER))
            return
        self._decider.propose(
            reassignments.alter_reassignments(self._decider.view(), request, actor),
            reply,
            lambda code: reply(reassignments.refused(request, code)),
        )

    def list_reassignments(
        self,
        request: ListPartitionReassignmentsRequest,
        reply: Callable[[ListPartitionReassignmentsResponse], None],
    ) -> None:
        if not self._decider.is_active:
            reply(ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None))
            return
        reply(reassignments.list_reassignments(self._decider.view().image, request))
