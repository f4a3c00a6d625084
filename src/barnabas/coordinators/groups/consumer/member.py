"""A member of a consumer group as a value: its subscription, its partitions, and those it must release.

    STABLE                 it has all its partitions at its epoch
    UNREVOKED_PARTITIONS   it has to release partitions, and has not confirmed that yet
    UNRELEASED_PARTITIONS  it is at the newest epoch and waits for partitions that others have not released

A partition belongs to the one member that has it assigned or has yet to release it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

#: Partitions by topic id; never changed in place, and without topics that have no partitions.
Assignment = Mapping[bytes, frozenset[int]]
NOTHING: Final[Assignment] = {}

#: Member epochs with a special meaning: join (again), leave, leave temporarily as a static member.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

NO_REGEX: Final = ""

#: The number of topics, partitions or members that a step of a group's work looks at: about a quarter of a millisecond.
PER_UNIT: Final = 250


class MemberState(IntEnum):
    """The states of a member of a consumer group, numbered as in the log. UNKNOWN stands for numbers that a later
    release may write.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


class ClassicInfo(NamedTuple):
    """The classic part of a member that uses the classic protocol: its protocols as (name, metadata), in order of
    preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group; the module docstring describes its states. Requests with `previous_epoch` are
    also accepted, since the member may have missed a response.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    regex: str = NO_REGEX
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicInfo | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def at_epoch(self, epoch: int) -> Member:
        """Returns the member at a new epoch; the old one becomes `previous_epoch`, even if it is the same."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def same_subscription_record(self, other: Member) -> bool:
        """Returns whether this member and `other` have the same subscription record, whatever their epochs and
        partitions.
        """
        return (
            self.instance_id == other.instance_id
            and self.rack_id == other.rack_id
            and self.client_id == other.client_id
            and self.client_host == other.client_host
            and self.topic_names == other.topic_names
            and self.regex == other.regex
            and self.rebalance_timeout_ms == other.rebalance_timeout_ms
            and self.server_assignor == other.server_assignor
            and self.classic == other.classic
        )

    def same_assignment_record(self, other: Member) -> bool:
        return (
            self.epoch == other.epoch
            and self.previous_epoch == other.previous_epoch
            and self.state is other.state
            and self.assigned == other.assigned
            and self.revoking == other.revoking
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Returns whether the member has its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def holdings(self) -> Iterator[tuple[bytes, int]]:
        """Yields every partition that no other member can get: those assigned to this member, and those that it has yet
        to release. They have no order.
        """
        for assignment in (self.assigned, self.revoking):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    yield topic_id, partition


def partitions_of(assignment: Assignment) -> Iterator[tuple[bytes, int]]:
    for topic_id in sorted(assignment):
        for partition in sorted(assignment[topic_id]):
            yield topic_id, partition


def assignment_of(partitions: Iterable[tuple[bytes, int]]) -> Assignment:
    by_topic: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(by_topic[topic_id]) for topic_id in sorted(by_topic)}


def assignment_in_steps(partitions: Iterable[tuple[bytes, int]]) -> Generator[int, None, Assignment]:
    """Returns the assignment like `assignment_of`, in steps; its topics have no order."""
    by_topic: dict[bytes, set[int]] = {}
    for count, (topic_id, partition) in enumerate(partitions, 1):
        by_topic.setdefault(topic_id, set()).add(partition)
        if not count % PER_UNIT:
            yield 1
    assignment: dict[bytes, frozenset[int]] = {}
    for count, (topic_id, found) in enumerate(by_topic.items(), 1):
        assignment[topic_id] = frozenset(found)
        if not count % PER_UNIT:
            yield 1
    return assignment


def has_any(owned: Assignment, of: Assignment) -> bool:
    """Returns whether the two assignments share a partition."""
    return any(not partitions.isdisjoint(owned.get(topic_id, ())) for topic_id, partitions in of.items())


def is_within(owned: Assignment, allowed: Assignment) -> bool:
    """Returns whether every owned partition is in `allowed`."""
    return all(partitions <= allowed.get(topic_id, frozenset()) for topic_id, partitions in owned.items())
