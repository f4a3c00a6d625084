"""The server-side assignors of KIP-848: each computes the target assignment of a group.

    uniform  as even as possible over all topics together, with as few partitions as possible moved
    range    per topic, ranges of partitions to members in order: co-partitioned topics stay together

`Planner.make_target` calls them. Both depend only on subscriptions and the last target: equal inputs give equal
assignments, in any process.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.coordinators.groups.consumer.member import Assignment, assignment_of


class Subscriber(NamedTuple):
    """A member as assignors see it. `topic_ids` are those of existing topics; `target` is its last target
    assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Assignment


#: The partition counts by topic id.
PartitionCounts = Mapping[bytes, int]
#: The target assignments by member id, one for each subscriber.
Targets = dict[str, Assignment]
Assignor = Callable[[Sequence[Subscriber], PartitionCounts], Targets]

_Partition = tuple[bytes, int]


def assign_range(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Targets:
    """Assigns ranges. Static members come first, by instance id, so that a restart does not change their partitions."""
    in_order = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))
    shared: dict[str, dict[bytes, frozenset[int]]] = {one.member_id: {} for one in in_order}
    for topic_id in sorted({topic_id for one in in_order for topic_id in one.topic_ids}):
        subscriber_ids = [one.member_id for one in in_order if topic_id in one.topic_ids]
        quota, extras = divmod(counts[topic_id], len(subscriber_ids))
        start = 0
        for index, member_id in enumerate(subscriber_ids):
            end = start + quota + (index < extras)
            if start < end:
                shared[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(shared)


def assign_uniform(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Targets:
    """Assigns evenly over all topics and leaves as many partitions as possible with their members."""
    if not subscribers:
        return {}
    first = subscribers[0].topic_ids
    if all(one.topic_ids == first for one in subscribers):
        return _assign_equal(subscribers, counts)
    return _Balance(subscribers, counts).assign()


def _kept(one: Subscriber, counts: PartitionCounts, taken: set[_Partition]) -> list[_Partition]:
    """Returns the partitions of a member that it can keep, in order. A partition assigned to two members stays with the
    first one."""
    kept = []
    for topic_id in sorted(one.target):
        if topic_id in one.topic_ids:
            for partition in sorted(one.target[topic_id]):
                place = (topic_id, partition)
                if partition < counts[topic_id] and place not in taken:
                    taken.add(place)
                    kept.append(place)
    return kept


def _assign_equal(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Targets:
    """Assigns partitions to members with equal subscriptions: each member gets the same number or one more; the members
    that have the most partitions now get the extra ones."""
    topic_ids = sorted(subscribers[0].topic_ids)
    taken: set[_Partition] = set()
    in_order = sorted(subscribers, key=lambda one: one.member_id)
    kept = {one.member_id: _kept(one, counts, taken) for one in in_order}
    quota, extras = divmod(sum(counts[topic_id] for topic_id in topic_ids), len(in_order))
    limits: dict[str, int] = {}
    for one in sorted(in_order, key=lambda one: (-len(kept[one.member_id]), one.member_id)):
        limits[one.member_id] = quota + (extras > 0)
        extras -= 1
    for member_id, places in kept.items():
        for place in places[limits[member_id] :]:
            taken.discard(place)
        del places[limits[member_id] :]
    free = iter(
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(counts[topic_id])
        if (topic_id, partition) not in taken
    )
    for member_id, places in kept.items():
        while len(places) < limits[member_id]:
            places.append(next(free))
    assert next(free, None) is None, "every partition is assigned"
    return {member_id: assignment_of(places) for member_id, places in kept.items()}


class _Balance:
    """An assignment for different subscriptions: gives free partitions to the member with the fewest, then moves
    partitions from the member with the most to the one with the fewest while that evens them out. A round of moves goes
    through all topics. Overlapping subscriptions can need several rounds; after a few of them the assignment is nearly
    even."""

    _ROUNDS_MAX: Final = 16

    def __init__(self, subscribers: Sequence[Subscriber], counts: PartitionCounts) -> None:
        self._counts = counts
        in_order = sorted(subscribers, key=lambda one: one.member_id)
        taken: set[_Partition] = set()
        self._has = {one.member_id: dict.fromkeys(_kept(one, counts, taken)) for one in in_order}
        self._subscribers_of: dict[bytes, list[str]] = {}
        for one in in_order:
            for topic_id in one.topic_ids:
                self._subscribers_of.setdefault(topic_id, []).append(one.member_id)
        self._taken = taken
        # Topics with the fewest subscribers come first.
        self._topics = sorted(
            self._subscribers_of, key=lambda topic_id: (len(self._subscribers_of[topic_id]), topic_id)
        )

    def assign(self) -> Targets:
        for topic_id in self._topics:
            self._assign_free(topic_id)
        for _ in range(self._ROUNDS_MAX):
            moved = [self._even_out(topic_id) for topic_id in self._topics]
            if not any(moved):
                break
        return {member_id: assignment_of(places) for member_id, places in self._has.items()}

    def _assign_free(self, topic_id: bytes) -> None:
        heap = [(len(self._has[member_id]), member_id) for member_id in self._subscribers_of[topic_id]]
        heapq.heapify(heap)
        for partition in range(self._counts[topic_id]):
            if (topic_id, partition) not in self._taken:
                size, member_id = heap[0]
                self._has[member_id][topic_id, partition] = None
                heapq.heapreplace(heap, (size + 1, member_id))

    def _even_out(self, topic_id: bytes) -> bool:
        """Moves partitions of this topic from the member with the most to the member with the fewest, while their
        numbers differ by two or more. Returns whether it moved any.
        """
        subscriber_ids = self._subscribers_of[topic_id]
        own = {
            member_id: [place for place in self._has[member_id] if place[0] == topic_id] for member_id in subscriber_ids
        }
        moved = False
        while True:
            smallest = min(subscriber_ids, key=lambda member_id: (len(self._has[member_id]), member_id))
            donors = [member_id for member_id in subscriber_ids if own[member_id]]
            if not donors:
                return moved
            largest = max(donors, key=lambda member_id: (len(self._has[member_id]), member_id))
            if len(self._has[largest]) - len(self._has[smallest]) < 2:
                return moved
            place = own[largest].pop()
            del self._has[largest][place]
            self._has[smallest][place] = None
            own[smallest].append(place)
            moved = True


#: The assignors by the name that members request and `group.consumer.assignors` contains.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
