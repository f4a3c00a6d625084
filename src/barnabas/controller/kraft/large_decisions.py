"""Decisions whose records take longer than a turn of the event loop can: topics with thousands of partitions.

The records of such a decision belong together, so it cannot be proposed in portions like the changes of a broker's
partitions. It is decided, encoded and replayed in portions; then all of it is proposed in one turn. Other decisions are
made meanwhile. If one of them changed what the large decision has read (`requests/standing.py`), the large decision is
made again, and after `_ATTEMPTS` it is refused: a client that is refused can ask again, but a decision that is made in
one turn would delay everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions, whole
from barnabas.controller.kraft.metadata_transactions import all_or_nothing
from barnabas.controller.kraft.proposals import Prepared, Proposals, Refused, Reply
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.standing import Stands
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.image import MetadataDelta
from barnabas.raft.metadata_batches import encode_in_portions

T = TypeVar("T")
Decide = Callable[[ControllerView], Portions[Result[T]]]

_ATTEMPTS: Final = 20


def propose_partitions(
    proposals: Proposals, count: int, decide: Decide[T], stands: Stands, reply: Reply[T], refused: Refused
) -> None:
    """Proposes a decision about `count` new partitions: immediately if they fit in one portion, otherwise after several
    turns of the event loop. `refused` replies with NOT_CONTROLLER if the controller resigns before, and with
    REQUEST_TIMED_OUT if other decisions contradict every attempt.
    """
    if count > PARTITIONS_IN_PORTION:
        _attempt(proposals, decide, stands, reply, refused, _ATTEMPTS)
    else:
        proposals.propose(whole(decide(proposals.view())), reply, refused)


def _attempt(
    proposals: Proposals, decide: Decide[T], stands: Stands, reply: Reply[T], refused: Refused, left: int
) -> None:
    if not proposals.is_active:
        refused(ErrorCode.NOT_CONTROLLER)
        return
    image = proposals.image
    work = _decided_and_encoded(proposals.view(), decide)

    def go_on() -> None:
        if not proposals.is_active:
            refused(ErrorCode.NOT_CONTROLLER)
            return
        try:
            next(work)
        except StopIteration as end:
            result, prepared = end.value
        else:
            proposals.timers.call_soon(go_on)
            return
        now = proposals.image
        if now is image or stands(image, now):
            proposals.propose(result, reply, refused, prepared=prepared._replace(delta=prepared.delta.rebased(now)))
        elif left > 1:
            proposals.timers.call_soon(lambda: _attempt(proposals, decide, stands, reply, refused, left - 1))
        else:
            refused(ErrorCode.REQUEST_TIMED_OUT)

    go_on()


def _decided_and_encoded(view: ControllerView, decide: Decide[T]) -> Portions[tuple[Result[T], Prepared]]:
    result = yield from decide(view)
    yield
    records = all_or_nothing(result.records, view.image.metadata_version, result.cause.event.value)
    encoded = yield from encode_in_portions(records)
    yield
    delta = MetadataDelta(view.image)
    for number, (record, _) in enumerate(records):
        if number % PARTITIONS_IN_PORTION == 0:
            yield
        delta.replay(record)
    yield
    return result, Prepared(records, encoded, delta)
