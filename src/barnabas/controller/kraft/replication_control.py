"""Elections and reassignments of the active controller, on request and periodic.

Leadership returns to preferred replicas, and leaderless partitions get unclean leaders where the topic's settings allow
it: each at its interval, the latter also immediately when the settings change and when this controller becomes active.
What exceeds one batch follows in the next batch as soon as the first is proposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Timer, Timers
from barnabas.controller.kraft import elections, reassignments
from barnabas.controller.kraft.result import Result
from barnabas.controller.kraft.view import ControllerView
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
    """The part of `Controller` that supplies the view for decisions and proposes them."""

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
        """Proposes a decision. A caller that passes `reply` must also pass `refused`. Returns False if the quorum
        refuses the decision.
        """


class ReplicationControl:
    def __init__(self, timers: Timers, config: BrokerConfig, decider: Decider) -> None:
        self._decider = decider
        self._tasks = [
            _Periodic(timers, config.int_of("unclean.leader.election.interval.ms"), self.elect_unclean_leaders)
        ]
        if config.bool_of("auto.leader.rebalance.enable"):
            period_ms = config.int_of("leader.imbalance.check.interval.seconds") * 1_000
            self._tasks.append(_Periodic(timers, period_ms, self.rebalance_leaders))

    def start(self) -> None:
        """Begins the periodic elections and rebalances, when this controller becomes active."""
        for task in self._tasks:
            task.start()
        self.elect_unclean_leaders()

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()

    # Decisions on request.

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

    # Periodic.

    def elect_unclean_leaders(self) -> None:
        self._in_batches(elections.unclean_elections_due)

    def rebalance_leaders(self) -> None:
        self._in_batches(elections.rebalance)

    def _in_batches(self, decide: Callable[[ControllerView], Result[None]]) -> None:
        """Decides and proposes until nothing is left; each decision sees the previous one, so this ends."""
        while self._decider.is_active:
            result = decide(self._decider.view())
            if not result.records or not self._decider.propose(result):
                return


class _Periodic:
    __slots__ = ("_period_ms", "_task", "_timer", "_timers")

    def __init__(self, timers: Timers, period_ms: int, task: Callable[[], None]) -> None:
        self._timers = timers
        self._period_ms = period_ms
        self._task = task
        self._timer: Timer | None = None

    def start(self) -> None:
        self.stop()
        self._timer = self._timers.call_later(self._period_ms, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self.start()
        self._task()
