"""The decisions of requests about thousands of partitions, part by part, in slices.

Each part is a decision of its own, on the image as it is then; the response has the rows of all parts. A part whose
writes found unexpected content in ZooKeeper refuses the whole request, as it would refuse a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.controller.replication_requests import Decider, ReplicationRequests
from barnabas.controller.requests import elections, reassignments
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.active_controller import ActiveController
from barnabas.controller.zookeeper.answers import Answer
from barnabas.controller.zookeeper.request_parts import (
    joined_alter_reassignments,
    joined_elect_leaders,
    parts_of_alter_reassignments,
    parts_of_elect_leaders,
)
from barnabas.controller.zookeeper.slices import Job
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

T = TypeVar("T")


def decide_parts(
    active: ActiveController,
    parts: Sequence[T],
    decide: Callable[[ControllerView, T], Result[Any]],
    answer: Answer,
    joined: Callable[[Sequence[Any]], object],
    preparation: Iterable[None] = (),
) -> None:
    """Decides the parts of a request, after a preparation, and answers with their joined responses when all of them are
    written.
    """
    active.core.slices.begin(chain(preparation, _deciding(active, parts, decide, answer, joined)))


def _deciding(
    active: ActiveController,
    parts: Sequence[T],
    decide: Callable[[ControllerView, T], Result[Any]],
    answer: Answer,
    joined: Callable[[Sequence[Any]], object],
) -> Job:
    core = active.core
    responses: list[Any] = []
    conflicts: set[str] = set()
    for number, part in enumerate(parts):
        if number:
            yield
        result = decide(core.view(), part)
        responses.append(result.response)
        core.propose_in_job(result, conflicts.update)

    def written(_: frozenset[str]) -> None:
        if conflicts:
            answer.refuse(ErrorCode.NOT_CONTROLLER)
        else:
            answer.give(joined(responses))

    core.records.after_all(written)


class LargeReplicationRequests(ReplicationRequests):
    """Elections and reassignments on request, in slices. `active` returns the active controller."""

    def __init__(self, decider: Decider, active: Callable[[], ActiveController | None]) -> None:
        super().__init__(decider)
        self._active = active

    def elect_leaders(
        self, request: ElectLeadersRequest, reply: Callable[[ElectLeadersResponse], None], *, actor: str
    ) -> None:
        active = self._active()
        if active is None or not self._decider.is_active:
            super().elect_leaders(request, reply, actor=actor)
            return
        decide_parts(
            active,
            parts_of_elect_leaders(elections.with_partitions(active.core.view(), request)),
            lambda view, part: elections.elect_leaders(view, part, actor),
            active.answers.add(reply, lambda code: reply(elections.refused(request, code))),
            joined_elect_leaders,
        )

    def alter_reassignments(
        self,
        request: AlterPartitionReassignmentsRequest,
        reply: Callable[[AlterPartitionReassignmentsResponse], None],
        *,
        actor: str,
    ) -> None:
        active = self._active()
        if active is None or not self._decider.is_active:
            super().alter_reassignments(request, reply, actor=actor)
            return
        decided: set[tuple[str, int]] = set()
        decide_parts(
            active,
            parts_of_alter_reassignments(request),
            lambda view, part: reassignments.alter_reassignments(view, part, actor, decided),
            active.answers.add(reply, lambda code: reply(reassignments.refused(request, code))),
            joined_alter_reassignments,
            _texts_of(active, {topic.name for topic in request.topics}),
        )


def _texts_of(active: ActiveController, names: Iterable[str]) -> Job:
    """Encodes the assignments of large topics in slices. Each part of the request writes the whole assignment of its
    topic.
    """
    for name in names:
        topic = active.core.image.topics_by_name.get(name)
        if topic is not None:
            yield from active.core.records.texts.prepare(topic)
