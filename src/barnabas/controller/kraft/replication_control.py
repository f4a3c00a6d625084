"""The active controller's care for replicas: elections and reassignments asked for, and what it does by itself.

By itself it brings leaders back where they are preferred, and elects unclean leaders where a topic's settings allow
them: each at its interval, the latter also at once when the settings change and when this controller becomes active.
More than one batch takes is gone on with as soon as the batch is on its way.
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
    """What decisions are made on and carried out by (`Controller`)."""

    @property
    def is_active(self) -> bool: ...

    def view(self) -> ControllerView:
        """Only while active."""

    def commit(
        self,
        result: Result[Any],
        reply: Callable[[Any], None] | None = None,
        refused: Callable[[ErrorCode], None] | None = None,
    ) -> bool:
        """Whoever has a `reply` has a `refused`. False if there is no room for it."""


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
        """This controller is active."""
        for task in self._tasks:
            task.start()
        self.elect_unclean_leaders()

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()

    # Asked for.

    def elect_leaders(
        self, request: ElectLeadersRequest, reply: Callable[[ElectLeadersResponse], None], *, actor: str
    ) -> None:
        if not self._decider.is_active:
            reply(elections.refused(request, ErrorCode.NOT_CONTROLLER))
            return
        self._decider.commit(
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
        self._decider.commit(
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

    # By itself.

    def elect_unclean_leaders(self) -> None:
        self._in_batches(elections.unclean_elections_due)

    def rebalance_leaders(self) -> None:
        self._in_batches(elections.rebalance)

    def _in_batches(self, decide: Callable[[ControllerView], Result[None]]) -> None:
        """Each decision sees what the one before it changed, so it ends."""
        while self._decider.is_active:
            result = decide(self._decider.view())
            if not result.records or not self._decider.commit(result):
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
