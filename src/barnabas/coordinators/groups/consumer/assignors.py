"""The server-side assignors of KIP-848: each computes the target assignment of a group.

    uniform  as even as possible over all topics together, with as few partitions as possible moved
    range    per topic, ranges of partitions to members in order: co-partitioned topics stay together

`assign` calls them. Both depend only on subscriptions and the last target: equal inputs give equal
assignments, in any process. They are generators that yield units of work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.common.gradual import sorted_gradually
from barnabas.coordinators.groups.consumer.member import PER_UNIT, Assignment, assignment_in_steps, assignment_of


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
Assigning = Generator[int, None, Targets]
Assignor = Callable[[Sequence[Subscriber], PartitionCounts], Assigning]

_Partition = tuple[bytes, int]

#: The number of ids that are added to a set in a quarter of a millisecond.
_IDS_PER_UNIT: Final = 4_000


def assign_range(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigning:
    """Assigns ranges. Static members come first, by instance id, so that a restart does not change their partitions."""
    if not subscribers:
        return {}
    in_order = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))
    shared: dict[str, dict[bytes, frozenset[int]]] = {one.member_id: {} for one in in_order}
    topic_ids = yield from _all_topics(subscribers)
    work = 0
    for topic_id in topic_ids:
        subscriber_ids = [one.member_id for one in in_order if topic_id in one.topic_ids]
        quota, extras = divmod(counts[topic_id], len(subscriber_ids))
        start = 0
        for index, member_id in enumerate(subscriber_ids):
            end = start + quota + (index < extras)
            if start < end:
                shared[member_id][topic_id] = frozenset(range(start, end))
            start = end
        work += 1 + len(in_order)
        if work > PER_UNIT:
            yield work // PER_UNIT
            work = 0
    return dict(shared)


def _all_topics(subscribers: Sequence[Subscriber]) -> Generator[int, None, list[bytes]]:
    """Returns the topics that any of them subscribes to, in order."""
    # Members with equal subscriptions share the set.
    subscriptions = list({one.topic_ids for one in subscribers})
    found: set[bytes] | frozenset[bytes] = subscriptions[0]
    if len(subscriptions) > 1:
        found = set(found)
        for topic_ids in subscriptions[1:]:
            found |= topic_ids
            if len(topic_ids) > PER_UNIT:
                yield 1 + len(topic_ids) // _IDS_PER_UNIT
    return sorted(found) if len(found) <= PER_UNIT else (yield from sorted_gradually(found))


def assign_uniform(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigning:
    """Assigns evenly over all topics and leaves as many partitions as possible with their members."""
    if not subscribers:
        return {}
    first = subscribers[0].topic_ids
    for one in subscribers:
        if one.topic_ids is not first and one.topic_ids != first:
            return (yield from _Balance(subscribers, counts).assign())
    return (yield from _assign_equal(subscribers, counts))


def _all_kept(
    in_order: Sequence[Subscriber], counts: PartitionCounts, taken: set[_Partition]
) -> Generator[int, None, dict[str, list[_Partition]]]:
    """Returns the partitions that each member can keep, in order, and adds them to `taken`. A partition assigned to two
    members stays with the first one."""
    kept: dict[str, list[_Partition]] = {}
    work = 0
    for one in in_order:
        target, wanted = one.target, one.topic_ids
        places = kept[one.member_id] = []
        for topic_id in sorted(target) if len(target) <= PER_UNIT else (yield from sorted_gradually(target)):
            if topic_id in wanted:
                for partition in sorted(target[topic_id]):
                    place = (topic_id, partition)
                    if partition < counts[topic_id] and place not in taken:
                        taken.add(place)
                        places.append(place)
            work += 1 + len(target[topic_id])
            if work > PER_UNIT:
                yield work // PER_UNIT
                work = 0
    return kept


def _assign_equal(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigning:
    """Assigns partitions to members with equal subscriptions: each member gets the same number or one more; the members
    that have the most partitions now get the extra ones."""
    topic_ids = yield from _all_topics(subscribers[:1])
    taken: set[_Partition] = set()
    in_order = sorted(subscribers, key=lambda one: one.member_id)
    kept = yield from _all_kept(in_order, counts, taken)
    quota, extras = divmod(sum(counts[topic_id] for topic_id in topic_ids), len(in_order))
    limits: dict[str, int] = {}
    for one in sorted(in_order, key=lambda one: (-len(kept[one.member_id]), one.member_id)):
        limits[one.member_id] = quota + (extras > 0)
        extras -= 1
    work = 0
    for member_id, places in kept.items():
        limit = limits[member_id]
        if len(places) > limit:
            surplus = places[limit:]
            taken.difference_update(surplus)
            del places[limit:]
            work += 1 + len(surplus)
            if work > PER_UNIT:
                yield 1 + work // _IDS_PER_UNIT
                work = 0
    yield from _fill(kept, limits, (topic_ids, counts, taken))
    targets: Targets = {}
    for member_id, places in kept.items():
        size = len(places)
        targets[member_id] = (yield from assignment_in_steps(places)) if size > PER_UNIT else assignment_of(places)
        work += 1 + size
        if work > PER_UNIT:
            yield 1
            work = 0
    return targets


def _fill(
    kept: Mapping[str, list[_Partition]],
    limits: Mapping[str, int],
    cluster: tuple[Sequence[bytes], PartitionCounts, set[_Partition]],
) -> Generator[int, None, None]:
    """Gives the free partitions, in order, to the members below their limits, in order. `cluster` has the topics, their
    partition counts and the partitions that are not free."""
    topic_ids, counts, taken = cluster
    needy = ((places, limits[member_id]) for member_id, places in kept.items() if len(places) < limits[member_id])
    places: list[_Partition] = []
    limit = work = 0
    for topic_id in topic_ids:
        for partition in range(counts[topic_id]):
            place = (topic_id, partition)
            if place not in taken:
                if len(places) >= limit:
                    places, limit = next(needy)
                places.append(place)
        work += 1 + counts[topic_id]
        if work > PER_UNIT:
            yield work // PER_UNIT
            work = 0
    assert len(places) >= limit, "the last member has its number of partitions"
    assert next(needy, None) is None, "every member has its number of partitions"


class _Balance:
    """An assignment for different subscriptions: gives free partitions to the member with the fewest, then moves
    partitions from the member with the most to the one with the fewest while that evens them out. A round of moves goes
    through all topics. Overlapping subscriptions can need several rounds; after a few of them the assignment is nearly
    even."""

    _ROUNDS_MAX: Final = 16

    def __init__(self, subscribers: Sequence[Subscriber], counts: PartitionCounts) -> None:
        self._counts = counts
        self._subscribers = sorted(subscribers, key=lambda one: one.member_id)
        self._taken: set[_Partition] = set()
        #: The number of partitions that each member has.
        self._sizes = dict.fromkeys((one.member_id for one in self._subscribers), 0)
        #: Topic id -> the partitions of each subscriber, in the order in which it got them.
        self._places: dict[bytes, dict[str, list[int]]] = {}
        #: The work since the latest step.
        self._work = 0

    def _step(self, work: int) -> Iterator[int]:
        """Yields units once enough work has been done."""
        self._work += work
        if self._work > PER_UNIT:
            yield self._work // PER_UNIT
            self._work = 0

    def assign(self) -> Assigning:
        topic_ids = yield from self._prepare()
        for topic_id in topic_ids:
            yield from self._assign_free(topic_id)
        for _ in range(self._ROUNDS_MAX):
            moved = False
            for topic_id in topic_ids:
                moved = (yield from self._even_out(topic_id)) or moved
            if not moved:
                break
        return (yield from self._targets(topic_ids))

    def _prepare(self) -> Generator[int, None, list[bytes]]:
        """Finds the subscribers of each topic and what they keep. Returns the topics; those with the fewest subscribers
        come first."""
        for one in self._subscribers:
            for topic_id in one.topic_ids:
                self._places.setdefault(topic_id, {})[one.member_id] = []
                self._work += 1
                if self._work > PER_UNIT:
                    yield from self._step(0)
        kept = yield from _all_kept(self._subscribers, self._counts, self._taken)
        for member_id, places in kept.items():
            self._sizes[member_id] = len(places)
            for topic_id, partition in places:
                self._places[topic_id][member_id].append(partition)
            yield from self._step(len(places))
        by_subscribers: dict[int, list[bytes]] = {}
        for topic_id, shares in self._places.items():
            by_subscribers.setdefault(len(shares), []).append(topic_id)
        in_order: list[bytes] = []
        for number in sorted(by_subscribers):
            found = by_subscribers[number]
            in_order += sorted(found) if len(found) <= PER_UNIT else (yield from sorted_gradually(found))
        return in_order

    def _assign_free(self, topic_id: bytes) -> Generator[int, None, None]:
        shares = self._places[topic_id]
        heap = [(self._sizes[member_id], member_id) for member_id in shares]
        heapq.heapify(heap)
        for partition in range(self._counts[topic_id]):
            if (topic_id, partition) not in self._taken:
                size, member_id = heap[0]
                shares[member_id].append(partition)
                self._sizes[member_id] = size + 1
                heapq.heapreplace(heap, (size + 1, member_id))
        yield from self._step(1 + len(heap) + self._counts[topic_id])

    def _even_out(self, topic_id: bytes) -> Generator[int, None, bool]:
        """Moves partitions of this topic from the member with the most to the member with the fewest, while their
        numbers differ by two or more. Returns whether it moved any.
        """
        shares, sizes = self._places[topic_id], self._sizes
        moved = False
        while True:
            yield from self._step(1 + len(shares))
            smallest = min(shares, key=lambda member_id: (sizes[member_id], member_id))
            donors = [member_id for member_id, partitions in shares.items() if partitions]
            if not donors:
                return moved
            largest = max(donors, key=lambda member_id: (sizes[member_id], member_id))
            if sizes[largest] - sizes[smallest] < 2:
                return moved
            shares[smallest].append(shares[largest].pop())
            sizes[largest] -= 1
            sizes[smallest] += 1
            moved = True

    def _targets(self, topic_ids: Sequence[bytes]) -> Assigning:
        targets: dict[str, dict[bytes, frozenset[int]]] = {one.member_id: {} for one in self._subscribers}
        for topic_id in topic_ids:
            for member_id, partitions in self._places[topic_id].items():
                if partitions:
                    targets[member_id][topic_id] = frozenset(partitions)
            yield from self._step(1 + len(self._places[topic_id]))
        return dict(targets)


#: The assignors by the name that members request and `group.consumer.assignors` contains.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def assign(assignor: str, subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigning:
    """Returns the target assignment that the assignor of this name computes."""
    return (yield from ASSIGNORS[assignor](subscribers, counts))
