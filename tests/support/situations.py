"""Small clusters for questions: partitions as lists of replicas, the preferred leader first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.decisions.partition import UNASSIGNED_DIRECTORY, PartitionImage
from barnabas.whatif.situation import BrokerFacts, Key, Situation, TopicFacts


def partition(
    replicas: Sequence[int],
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    elr: Sequence[int] = (),
) -> PartitionImage:
    """Returns a partition; by default all replicas are in sync, and the first member of the ISR leads."""
    members = tuple(replicas if isr is None else isr)
    chosen = (members[0] if members else -1) if leader is None else leader
    return PartitionImage(
        tuple(replicas), members, chosen, 1, 1, (UNASSIGNED_DIRECTORY,) * len(replicas), elr=tuple(elr)
    )


def situation(
    topics: Mapping[str, Sequence[PartitionImage]],
    *,
    brokers: Sequence[int] = (1, 2, 3),
    racks: Mapping[int, str] | None = None,
    silent: Sequence[int] = (),
    min_isr: int = 1,
    settings: Mapping[str, TopicFacts] | None = None,
    **others: Any,
) -> Situation:
    """Returns a cluster of these topics. `settings` overrides the min ISR for some of them."""
    partitions: dict[Key, PartitionImage] = {
        (name, index): each for name in sorted(topics) for index, each in enumerate(topics[name])
    }
    facts = {name: (settings or {}).get(name, TopicFacts(min_isr)) for name in topics}
    known = {
        broker: BrokerFacts(broker, (racks or {}).get(broker), "no response in time" if broker in silent else None)
        for broker in brokers
    }
    fields: dict[str, Any] = {"controller": 1, "voters": (1, 2, 3), **others}
    return Situation(brokers=known, partitions=partitions, topics=facts, **fields)
