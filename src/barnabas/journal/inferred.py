"""The causes of changes by a controller that keeps no journal: a broker of Apache Kafka in ZooKeeper mode.

Its requests show what changed, but not why. Each broker of this project compares the states of a partition before and
after the change with the list of live brokers half a second later, because the new roles arrive before the new list.
All of them write what they infer: the ids of events are derived from the epochs of the partition, so that readers drop
the copies.

Only changes of leader, ISR and replicas are inferred, and changes of the controller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final

from barnabas.common.host import Timers
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.controller.requests.view import ControllerView
from barnabas.journal.causes import EventCause
from barnabas.journal.event_record import VERSION
from barnabas.journal.events import Event, MetadataChange, changed_partitions
from barnabas.metadata.topics import NO_LEADER, PartitionImage

#: The time that a change waits for the list of live brokers that follows it.
SETTLE_MS: Final = 500
#: The largest number of changes that wait; later ones are not explained.
CHANGES_MAX: Final = 1_000
#: The changed partitions that are explained in one turn of the loop: a broker that dies changes thousands.
_WEIGHT_AT_ONCE: Final = 250


class UnexplainedChanges:
    """The queue of changes by a controller without a journal. Those that have settled are explained in slices.

    `explain` returns the events of a change by a controller; `take` gets the events of a slice, and `ended` is called
    after the last one.
    """

    def __init__(
        self,
        timers: Timers,
        explain: Callable[[int, MetadataChange], Iterable[Event]],
        take: Callable[[list[Event]], None],
        ended: Callable[[], None],
    ) -> None:
        self._timers = timers
        self._explain = explain
        self._take = take
        self._ended = ended
        self._unsettled: list[tuple[int, MetadataChange]] = []
        self._settled: deque[tuple[int, MetadataChange]] = deque()
        self._is_scheduled = False
        self._is_closed = False

    def add(self, controller_id: int, change: MetadataChange) -> None:
        if len(self._unsettled) + len(self._settled) >= CHANGES_MAX:
            return
        self._unsettled.append((controller_id, change))
        self._await_settling()

    def close(self) -> None:
        self._is_closed = True

    def _await_settling(self) -> None:
        if self._unsettled and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_later(SETTLE_MS, self._begin)

    def _begin(self) -> None:
        self._settled.extend(self._unsettled)
        self._unsettled.clear()
        self._run_slice()

    def _run_slice(self) -> None:
        if self._is_closed:
            return
        found: list[Event] = []
        left = _WEIGHT_AT_ONCE
        while self._settled and left > 0:
            controller_id, change = self._settled.popleft()
            found += self._explain(controller_id, change)
            left -= change.weight
        self._take(found)
        if self._settled:
            self._timers.call_soon(self._run_slice)
            return
        self._is_scheduled = False
        self._ended()
        self._await_settling()


def inferred_events(
    change: MetadataChange, view: ControllerView, node_id: int, controller_id: int, live: Container[int]
) -> Iterator[Event]:
    """Yields the events of a change that a controller without a journal made. `live` has the brokers that are alive
    now.
    """
    epoch = change.image.epoch
    if 0 < change.delta.image.epoch < epoch:
        yield {
            "v": VERSION,
            "id": f"e{epoch}:controller:{controller_id}",
            "time_ms": change.image.timestamp_ms,
            "kind": "controller-change",
            "node": node_id,
            "controller": controller_id,
            "epoch": epoch,
            "cause": "activation",
            "actor": "controller",
            "text": f"a controller became active: epoch {epoch}",
            "inferred": True,
        }
    found = changed_partitions(change, view, node_id, lambda before, after: inferred_cause(before, after, live))
    for subject, event in found:
        after: dict[str, Any] = event["after"]
        del event["metadata_offset"]
        yield {**event, "id": f"e{epoch}.{after['leader_epoch']}.{after['partition_epoch']}:{subject}"}


def concerns_users(events: Sequence[Event]) -> bool:
    """Returns whether any event is about a partition of a user's topic."""
    return any("partition" in event and event["topic"] not in INTERNAL_TOPICS for event in events)


def inferred_cause(before: PartitionImage, after: PartitionImage, live: Container[int]) -> EventCause:
    """Returns the probable cause of a partition's change. A change within one leader epoch was requested by the
    leader.
    """
    left = [replica for replica in before.replicas if replica in before.isr and replica not in after.isr]
    if before.leader not in (NO_LEADER, after.leader, *left):
        left.append(before.leader)
    gone = [replica for replica in left if replica not in live]
    if _replicas(before) != _replicas(after):
        return _cause("reassignment-asked", "replicas of the partition were moved")
    if after.leader == before.leader and after.leader_epoch == before.leader_epoch:
        return _cause("isr-asked", f"broker {after.leader} requested this ISR as the leader", f"broker {after.leader}")
    if gone:
        return _cause("broker-gone", f"{_brokers(gone)} no longer registered in ZooKeeper")
    if before.leader == NO_LEADER:
        return _cause("broker-back", f"broker {after.leader} is back and can lead")
    if set(after.isr) < set(before.isr):
        text = f"{_brokers(left)} still registered, but gave up its replicas: a shutdown, or a failed log directory"
        return _cause("controlled-shutdown", text)
    if after.leader != before.leader and after.leader == after.preferred_leader:
        return _cause("rebalance", "leadership moved back to the preferred replica")
    return _cause("controller-decided", "the controller decided so for a reason that it sent to no broker")


def _replicas(partition: PartitionImage) -> tuple[Sequence[int], ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _cause(code: str, text: str, actor: str = "controller") -> EventCause:
    return EventCause(code, text, actor, is_inferred=True)


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))} are"
