"""The effects on one partition: its state before and after, the effects, and the reason for its leader.

    offline          no broker leads it
    unclean          a replica leads that was neither in the ISR nor in the ELR: records are possibly lost
    under-min-isr    writes with acks=all are refused, or wait for a member that is gone
    single-copy      one replica has all committed records, and no other has
    at-min-isr       one more loss, and it is under its min ISR
    new-leader       another broker leads
    under-replicated a replica is out of sync, and no other state above applies

An effect is new if the state before did not have it. min ISR is `min.insync.replicas`, at most the number of replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.decisions.partition import NO_LEADER, PartitionImage
from barnabas.whatif.model import Model
from barnabas.whatif.situation import NO_BROKER, Key


class Effect(IntEnum):
    """The effects, the worst first."""

    OFFLINE = 0
    UNCLEAN = 1
    UNDER_MIN_ISR = 2
    SINGLE_COPY = 3
    AT_MIN_ISR = 4
    NEW_LEADER = 5
    UNDER_REPLICATED = 6

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


#: The effects that describe a state, and not a change.
_STATES = frozenset(Effect) - {Effect.UNCLEAN, Effect.NEW_LEADER}


class Outcome(NamedTuple):
    """A partition that changes, or that the question makes worse."""

    key: Key
    before: PartitionImage
    after: PartitionImage
    #: The broker that leads afterwards; -1 if none does, although the metadata possibly names one.
    leader: int
    #: The members of the ISR whose brokers run.
    in_sync: tuple[int, ...]
    min_isr: int
    #: The effects that the question has, the worst first.
    effects: tuple[Effect, ...]
    #: The effects that the partition had before, and keeps.
    already: tuple[Effect, ...]
    #: The reason for the leader, or why there is none.
    why: str
    #: The replica that would lead after an unclean election; -1 if the partition has a leader, or no replica is online.
    unclean_candidate: int = NO_BROKER

    @property
    def rank(self) -> tuple[int, bool, Key]:
        """The order of outcomes: the worst first, internal topics last, then by name."""
        worst = min(self.effects, default=len(Effect))
        return worst, self.key[0].startswith("__"), self.key

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "effects": [effect.label for effect in self.effects],
            "already": [effect.label for effect in self.already],
            "why": self.why,
            "min_isr": self.min_isr,
            "unclean_candidate": self.unclean_candidate,
            "before": _image_json(self.before, self.before.leader),
            "after": {**_image_json(self.after, self.leader), "in_sync": list(self.in_sync)},
        }


def _image_json(partition: PartitionImage, leader: int) -> dict[str, Any]:
    return {
        "leader": leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
    }


def outcomes(before: Model, after: Model, *, is_min_isr_asked: bool = False) -> Iterator[Outcome]:
    """Yields the partitions that differ in the two models, or have an effect only in `after`. `is_min_isr_asked`: a
    partition at its min ISR counts even if all of its replicas are in sync.
    """
    for key, partition in after.partitions.items():
        was = before.partitions[key]
        now_states = _states_of(after, key, is_full_counted=is_min_isr_asked)
        had = _states_of(before, key, is_full_counted=is_min_isr_asked)
        changes = set[Effect]()
        if key in after.unclean and key not in before.unclean:
            changes.add(Effect.UNCLEAN)
        leader = _live_leader(after, partition)
        if leader not in (NO_LEADER, was.leader):
            changes.add(Effect.NEW_LEADER)
        new = tuple(sorted((now_states - had) | changes))
        if not new and _is_same(was, partition):
            continue
        yield Outcome(
            key,
            was,
            partition,
            leader,
            _in_sync(after, partition),
            after.min_isr(key),
            new,
            tuple(sorted(now_states & had)),
            _why(after, key, was, leader),
            after.unclean_candidate(key) if leader == NO_LEADER and after.has_controller else NO_BROKER,
        )


def states_of(model: Model, key: Key) -> set[Effect]:
    """Returns the effects that the partition's state has."""
    return _states_of(model, key, is_full_counted=False)


def _states_of(model: Model, key: Key, *, is_full_counted: bool) -> set[Effect]:
    partition = model.partitions[key]
    if _live_leader(model, partition) == NO_LEADER:
        return {Effect.OFFLINE}
    found = set[Effect]()
    in_sync, min_isr, count = len(_in_sync(model, partition)), model.min_isr(key), len(partition.replicas)
    is_stuck = in_sync < len(partition.isr) and not model.has_controller
    if in_sync < min_isr or is_stuck:
        found.add(Effect.UNDER_MIN_ISR)
    elif in_sync == min_isr and (in_sync < count or (is_full_counted and count > 1)):
        found.add(Effect.AT_MIN_ISR)
    if in_sync == 1 and count > 1:
        found.add(Effect.SINGLE_COPY)
    if in_sync < count and not found:
        found.add(Effect.UNDER_REPLICATED)
    return found


def _live_leader(model: Model, partition: PartitionImage) -> int:
    leader = partition.leader
    if leader == NO_LEADER or leader not in partition.replicas or not model.is_online(partition, leader):
        return NO_LEADER
    return leader


def _in_sync(model: Model, partition: PartitionImage) -> tuple[int, ...]:
    return tuple(each for each in partition.isr if each in partition.replicas and model.is_online(partition, each))


def _is_same(one: PartitionImage, other: PartitionImage) -> bool:
    return (
        one.leader == other.leader
        and one.replicas == other.replicas
        and sorted(one.isr) == sorted(other.isr)
        and sorted(one.elr) == sorted(other.elr)
    )


def _why(model: Model, key: Key, was: PartitionImage, leader: int) -> str:
    partition = model.partitions[key]
    if leader == NO_LEADER:
        return _why_offline(model, key, partition)
    if key in model.unclean:
        return f"unclean election: {leader} lacks records that only {_ids(was.isr or was.elr)} had"
    if leader == was.leader:
        return f"{leader} continues to lead"
    if was.leader == NO_LEADER:
        return f"{leader} can lead again"
    if leader in was.elr and leader not in was.isr:
        return f"{leader} is eligible: it has all committed records (ELR)"
    if model.situation.strategy != "assignment":
        return f"{leader} is in sync, and the choice of the strategy {model.situation.strategy}"
    return f"{leader} is the first in-sync replica in the order of the assignment"


def _why_offline(model: Model, key: Key, partition: PartitionImage) -> str:
    there = [each for each in partition.replicas if model.is_online(partition, each)]
    if not there:
        text = "all of its replicas are" if len(partition.replicas) > 1 else "its only replica is"
        return f"{text} gone: {_ids(partition.replicas)}"
    if not model.has_controller:
        return "no controller elects: the metadata quorum has no majority"
    candidate = model.unclean_candidate(key)
    last = _ids(partition.isr or partition.elr or partition.replicas)
    return f"no live replica is in sync; the last in sync: {last}; only an unclean election could choose {candidate}"


def _ids(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))
