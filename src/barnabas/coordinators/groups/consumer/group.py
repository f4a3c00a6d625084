"""A group of the consumer protocol (KIP-848) as a value: its members, their targets, and the owner of each partition.

    Empty         no members; the group can have committed offsets
    Assigning     the group has changed since the last target assignment
    Reconciling   some member does not have its target assignment yet
    Stable        all members have it

Invariants
- Epochs only grow: the group's with every change of members, subscriptions or topics; the assignment's to the group's
  with each new target; a member's to the assignment's when it has released its revoked partitions.
- `owners` contains one member for each partition that is assigned or not released yet.
- An instance id belongs to one member.

A group is never changed in place: a change in flight is another value next to the committed one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from immutables import Map

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.member import NOTHING, PER_UNIT, Assignment, Member
from barnabas.coordinators.groups.consumer.regex import ResolvedRegex

#: The number of names that are added to a set in a quarter of a millisecond.
_NAMES_PER_UNIT: Final = 4_000
#: The fixed cost of a member's subscription, compared with one of its names.
_SUBSCRIPTION_WORK: Final = 4
_NO_NAMES: Final = frozenset[str]()


class ConsumerGroupState(Enum):
    """The states of a consumer group, with the names that Kafka shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group; the module docstring describes its states and invariants. Its maps have no order: records and
    responses are sorted.
    """

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: Map[str, Member] = field(default_factory=Map)
    targets: Map[str, Assignment] = field(default_factory=Map)
    regexes: Map[str, ResolvedRegex] = field(default_factory=Map)
    owners: Map[tuple[bytes, int], str] = field(default_factory=Map)
    static_ids: Map[str, str] = field(default_factory=Map)

    # -- reading

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.needs_target:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def needs_target(self) -> bool:
        """Returns whether the group has changed since its last target assignment."""
        return self.epoch > self.assignment_epoch

    def member(self, member_id: str) -> Member:
        """Returns the member. Raises RequestFailed with UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def in_order(self) -> list[Member]:
        """Returns the members, ordered by their ids."""
        return [self.members[member_id] for member_id in sorted(self.members)]

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def names_of(self, member: Member) -> frozenset[str]:
        """Returns the topics that the member subscribes to, by name or by expression, even if they do not exist."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        if resolved is None:
            return member.topic_names
        return member.topic_names | resolved.topics if member.topic_names else resolved.topics

    def names(self) -> frozenset[str]:
        """Returns the topics that any member subscribes to."""
        return frozenset().union(*{member.topic_names for member in self.members.values()}, *self._matched())

    def names_in_steps(self) -> Generator[int, None, frozenset[str] | set[str]]:
        """Returns the topics that any member subscribes to. The caller must not change them."""
        subscriptions: set[frozenset[str]] = set()
        work = 0
        for member in self.members.values():
            # Equal subscriptions of two members are compared name by name.
            names = member.topic_names
            subscriptions.add(names)
            work += _SUBSCRIPTION_WORK + len(names)
            if work > _NAMES_PER_UNIT:
                yield work // _NAMES_PER_UNIT
                work = 0
        if self.regexes:
            subscriptions.update(self._matched())
        subscriptions.discard(_NO_NAMES)
        if len(subscriptions) == 1:
            return subscriptions.pop()
        topics: set[str] = set()
        for names in subscriptions:
            topics |= names
            work += len(names)
            if work > _NAMES_PER_UNIT:
                yield work // _NAMES_PER_UNIT
                work = 0
        return topics

    def _matched(self) -> Iterator[frozenset[str]]:
        """Yields the sets of topics that members subscribe to by expression."""
        for regex in {member.regex for member in self.members.values()}:
            resolved = self.regexes.get(regex) if regex else None
            if resolved is not None:
                yield resolved.topics

    def subscribers_of(self, regex: str) -> int:
        return sum(member.regex == regex for member in self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        by_name = any(topic in member.topic_names for member in self.members.values())
        return by_name or any(topic in names for names in self._matched())

    def all_classic_without(self, leaving: Iterable[str]) -> bool:
        """Returns whether `leaving` contains exactly the members that use the consumer protocol."""
        left = frozenset(leaving)
        return all(member.is_classic != (member_id in left) for member_id, member in self.members.items())

    # -- changed copies

    def with_epoch(self, epoch: int, metadata_hash: int) -> ConsumerGroup:
        assert epoch > self.epoch, "a group's epoch increases"
        return replace(self, epoch=epoch, metadata_hash=metadata_hash)

    def with_targets(self, epoch: int, changed: Mapping[str, Assignment]) -> ConsumerGroup:
        assert epoch >= self.assignment_epoch, "the epoch of an assignment increases"
        return replace(self, assignment_epoch=epoch, targets=self.targets.update(changed))

    def with_regex(self, regex: str, resolved: ResolvedRegex | None) -> ConsumerGroup:
        if resolved is not None:
            return replace(self, regexes=self.regexes.set(regex, resolved))
        return replace(self, regexes=self.regexes.delete(regex)) if regex in self.regexes else self

    def with_member(self, member: Member) -> Generator[int, None, ConsumerGroup]:
        """Returns the group with this member, added or in place of the one with its id, in steps."""
        old = self.members.get(member.member_id)
        owners = self.owners
        if old is None or old.assigned is not member.assigned or old.revoking is not member.revoking:
            owners = yield from self._owners_with(old, member)
        static_ids = self.static_ids
        if old is not None and old.instance_id not in (None, member.instance_id):
            static_ids = static_ids.delete(old.instance_id)
        if member.instance_id is not None:
            static_ids = static_ids.set(member.instance_id, member.member_id)
        members = self.members.set(member.member_id, member)
        return replace(self, members=members, owners=owners, static_ids=static_ids)

    def _owners_with(
        self, old: Member | None, member: Member | None
    ) -> Generator[int, None, Map[tuple[bytes, int], str]]:
        owners = self.owners.mutate()
        if old is not None:
            for count, place in enumerate(old.holdings(), 1):
                del owners[place]
                if not count % PER_UNIT:
                    yield 1
        if member is not None:
            for count, place in enumerate(member.holdings(), 1):
                assert place not in owners, f"{place} has an owner already"
                owners[place] = member.member_id
                if not count % PER_UNIT:
                    yield 1
        return owners.finish()

    def without_member(self, member_id: str) -> Generator[int, None, ConsumerGroup]:
        """Returns the group without a member and its target, in steps."""
        member = self.members[member_id]
        owners = yield from self._owners_with(member, None)
        static_ids = self.static_ids
        if member.instance_id is not None and static_ids.get(member.instance_id) == member_id:
            static_ids = static_ids.delete(member.instance_id)
        targets = self.targets.delete(member_id) if member_id in self.targets else self.targets
        members = self.members.delete(member_id)
        return replace(self, members=members, targets=targets, owners=owners, static_ids=static_ids)
