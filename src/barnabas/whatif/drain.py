"""The new brokers for the replicas of drained brokers: for each replica, the best one by rack, load and leaders.

A replacement takes the place of the replica that it replaces, in the order of the assignment. It is, in this order:
in a rack that no other replica of the partition is in, with the fewest replicas, with the fewest preferred leaderships
if it becomes the preferred leader, with the lowest id. Brokers that do not answer get nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from barnabas.whatif.situation import Key, Situation


class DrainPlan(NamedTuple):
    moves: dict[Key, tuple[int, ...]]
    stuck: dict[Key, str]
    #: The bytes to be copied; None if no size is known.
    moved_bytes: int | None


def drain(situation: Situation, drained: Collection[int]) -> DrainPlan:
    """Returns the new replicas of each partition with a replica on a drained broker."""
    takers = [
        broker for broker in situation.brokers if broker not in drained and situation.brokers[broker].problem is None
    ]
    racks = {broker: situation.brokers[broker].rack for broker in situation.brokers}
    held: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    for partition in situation.partitions.values():
        held.update(partition.replicas)
        preferred[partition.preferred_leader] += 1
    found = DrainPlan({}, {}, None)
    copied, is_size_known = 0, False
    for key, partition in situation.partitions.items():
        if not set(partition.replicas) & set(drained):
            continue
        if partition.adding_replicas or partition.removing_replicas:
            found.stuck[key] = "it is being reassigned"
            continue
        target = list(partition.replicas)
        for place, replica in enumerate(partition.replicas):
            if replica not in drained:
                continue
            others = {racks.get(each) for each in target if each != replica and each not in drained} - {None}
            free = [each for each in takers if each not in target]
            if not free:
                found.stuck[key] = f"no broker is left for a replica of {len(partition.replicas)}"
                break
            chosen = min(
                free,
                key=lambda each: (
                    racks[each] in others,
                    held[each],
                    preferred[each] if place == 0 else 0,
                    each,
                ),
            )
            target[place] = chosen
            held[chosen] += 1
            held[replica] -= 1
            if place == 0:
                preferred[chosen] += 1
            copied += situation.sizes.get(key, 0)
            is_size_known = is_size_known or key in situation.sizes
        else:
            found.moves[key] = tuple(target)
    return found._replace(moved_bytes=copied if is_size_known else None)
