"""A draft: a consumer group as it will be after some records are committed, together with these records.

Every method changes the group and adds the record of the change, so that a failover replays exactly the state that was
served before it. Methods whose cost grows with the group or its subscriptions return a `Change`, which a caller steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.coordinators.groups.consumer import consumer_records as r
from barnabas.coordinators.groups.consumer.consumer_records import ConsumerKey, ConsumerRecordType, RecordInSteps
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Assignment, Member
from barnabas.coordinators.groups.consumer.regex import ResolvedRegex
from barnabas.coordinators.runtime import KeyValue

#: A change that is made in steps, if the group or its subscriptions are large.
Change = Generator[int, None, None]
#: The number of small records that are built in a quarter of a millisecond.
_RECORDS_PER_UNIT: Final = 25
_TOMBSTONES_PER_UNIT: Final = 100
#: The number of topics of targets that are compared in this time.
_COMPARED_PER_UNIT: Final = 2_500


class Savepoint(NamedTuple):
    """A state of a draft to return to when a request is refused."""

    group: ConsumerGroup | None
    records: int
    effects: int
    is_last: bool


class Draft:
    """A draft that starts as the committed group, or empty if there is none. `records` are written as one batch."""

    __slots__ = ("effects", "group_id", "is_last", "now", "records")

    def __init__(self, group_id: str, group: ConsumerGroup | None) -> None:
        self.group_id = group_id
        #: The group with all changes so far; None if there is none, or it was deleted.
        self.now = group
        self.records: list[KeyValue] = []
        #: Further effects of the commit, such as timers and the end of a classic group.
        self.effects: list[Callable[[], None]] = []
        #: Whether no further operation can join the batch.
        self.is_last = False

    def mark(self) -> Savepoint:
        return Savepoint(self.now, len(self.records), len(self.effects), self.is_last)

    def return_to(self, mark: Savepoint) -> None:
        """Undoes all changes made since the savepoint `mark`."""
        self.now = mark.group
        del self.records[mark.records :]
        del self.effects[mark.effects :]
        self.is_last = mark.is_last

    @property
    def group(self) -> ConsumerGroup:
        assert self.now is not None, "the draft has a group"
        return self.now

    # -- the group

    def create(self) -> None:
        assert self.now is None, "a group is created once"
        self.now = ConsumerGroup(self.group_id)

    def bump(self, metadata_hash: int) -> None:
        """Moves the group to its next epoch."""
        self.now = self.group.with_epoch(self.group.epoch + 1, metadata_hash)
        self.records.append(r.group_record(self.group_id, self.now.epoch, metadata_hash))

    def delete(self) -> Change:
        """Deletes the group with all its records."""
        group = self.group
        for kind in (ConsumerRecordType.CURRENT, ConsumerRecordType.TARGET):
            yield from self._tombstones(kind, group.members)
        self._tombstone(ConsumerRecordType.TARGET_EPOCH)
        yield from self._tombstones(ConsumerRecordType.MEMBER, group.members)
        yield from self._tombstones(ConsumerRecordType.REGEX, group.regexes)
        self._tombstone(ConsumerRecordType.GROUP)
        self.now = None

    def install(self, group: ConsumerGroup) -> Change:
        """Replaces the group by one that was built elsewhere, with its records in Kafka's order."""
        assert self.now is None, "a group is created once"
        self.now = group
        members = group.in_order()
        yield from self._add(r.member_record(self.group_id, member) for member in members)
        self.records.append(r.group_record(self.group_id, group.epoch, group.metadata_hash))
        yield from self._add(
            r.target_record(self.group_id, member.member_id, group.target(member.member_id)) for member in members
        )
        self.records.append(r.target_epoch_record(self.group_id, group.assignment_epoch))
        yield from self._add(r.current_record(self.group_id, member) for member in members)

    def _add(self, records: Iterable[RecordInSteps]) -> Change:
        for count, record in enumerate(records, 1):
            self.records.append((yield from record))
            if not count % _RECORDS_PER_UNIT:
                yield 1

    # -- members

    def put_member(self, member: Member) -> Change:
        """Adds or replaces a member. Writes one record if its subscription changes, and one if its partitions
        change.
        """
        old = self.group.members.get(member.member_id)
        self.now = yield from self.group.with_member(member)
        if old is None or not old.same_subscription_record(member):
            self.records.append((yield from r.member_record(self.group_id, member)))
        if not (old or Member(member.member_id)).same_assignment_record(member):
            self.records.append((yield from r.current_record(self.group_id, member)))

    def remove_member(self, member_id: str) -> Change:
        self.now = yield from self.group.without_member(member_id)
        for kind in (ConsumerRecordType.CURRENT, ConsumerRecordType.TARGET, ConsumerRecordType.MEMBER):
            self._tombstone(kind, member_id)

    # -- targets and expressions

    def put_targets(self, epoch: int, targets: Mapping[str, Assignment]) -> Change:
        """Sets the targets of all members; unchanged ones are not written again."""
        old = self.group.targets
        changed: dict[str, Assignment] = {}
        work = 0
        for member_id in sorted(targets):
            target = targets[member_id]
            if old.get(member_id) != target:
                changed[member_id] = target
            work += 1 + len(target)
            if work > _COMPARED_PER_UNIT:
                yield work // _COMPARED_PER_UNIT
                work = 0
        self.now = self.group.with_targets(epoch, changed)
        yield from self._add(r.target_record(self.group_id, member_id, target) for member_id, target in changed.items())
        self.records.append(r.target_epoch_record(self.group_id, epoch))

    def put_target(self, member_id: str, target: Assignment) -> Change:
        """Sets the target of one member, without a new assignment epoch."""
        self.now = self.group.with_targets(self.group.assignment_epoch, {member_id: target})
        self.records.append((yield from r.target_record(self.group_id, member_id, target)))

    def put_regex(self, regex: str, resolved: ResolvedRegex) -> Change:
        self.now = self.group.with_regex(regex, resolved)
        self.records.append((yield from r.regex_record(self.group_id, regex, resolved)))

    def remove_regex(self, regex: str) -> None:
        self.now = self.group.with_regex(regex, None)
        self._tombstone(ConsumerRecordType.REGEX, regex)

    def _tombstone(self, kind: ConsumerRecordType, name: str = "") -> None:
        self.records.append(r.tombstone(ConsumerKey(kind, self.group_id, name)))

    def _tombstones(self, kind: ConsumerRecordType, names: Mapping[str, object]) -> Change:
        for count, name in enumerate(sorted(names), 1):
            self._tombstone(kind, name)
            if not count % _TOMBSTONES_PER_UNIT:
                yield 1
