"""Loading of consumer groups: built from the last record of each key, in any order of the records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.coordinators.groups.consumer import consumer_records as r
from barnabas.coordinators.groups.consumer.consumer_records import ConsumerKey, ConsumerRecordType, Current
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Assignment, Member, assignment_of, partitions_of
from barnabas.coordinators.groups.consumer.regex import ResolvedRegex
from barnabas.coordinators.steps import pauses

#: The number of members processed in one step.
_STEP: Final = 128


@dataclass(slots=True)
class _Found:
    """The records of one consumer group that the load has found."""

    epoch: tuple[int, int] | None = None
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    currents: dict[str, Current] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)

    def rank(self, member_id: str) -> tuple[int, str]:
        """Returns a key that orders members: the highest epoch comes first."""
        current = self.currents.get(member_id)
        return (0 if current is None else -current.epoch), member_id


class GroupLoading:
    """The consumer groups of one partition while it loads: `take` every record, then `finish`."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}

    def take(self, key: ConsumerKey, value: bytes) -> None:
        """Stores a record of `__consumer_offsets` for `finish`. Raises DecodeError."""
        found = self._found.setdefault(key.group_id, _Found())
        match key.type:
            case ConsumerRecordType.GROUP:
                found.epoch = r.parse_group_epoch(value)
            case ConsumerRecordType.MEMBER:
                found.members[key.name] = r.parse_member(key.name, value)
            case ConsumerRecordType.TARGET_EPOCH:
                found.assignment_epoch = r.parse_target_epoch(value)
            case ConsumerRecordType.TARGET:
                found.targets[key.name] = r.parse_target(value)
            case ConsumerRecordType.CURRENT:
                found.currents[key.name] = r.parse_current(value)
            case ConsumerRecordType.REGEX:
                found.regexes[key.name] = r.parse_regex(value)
            case ConsumerRecordType.PARTITION_METADATA:
                pass  # The group's next change compares the topics anyway, so this record is not needed.

    def finish(self, install: Callable[[ConsumerGroup], None]) -> Iterator[None]:
        """Passes the groups to `install` in order of their ids, in steps. Skips a group without an epoch record:
        that record is written last and deleted last."""
        for group_id, found in sorted(self._found.items()):
            if found.epoch is not None:
                install((yield from _build(group_id, found)))
            yield
        self._found.clear()


def _build(group_id: str, found: _Found) -> Generator[None, None, ConsumerGroup]:
    """Builds a group. A log that lost tombstones, because its replica was away for longer than `delete.retention.ms`,
    has members again that are gone: partitions and instance ids belong to the members with the highest epochs."""
    assert found.epoch is not None
    epoch, metadata_hash = found.epoch
    group = ConsumerGroup(group_id, epoch=epoch, metadata_hash=metadata_hash)
    taken: set[tuple[bytes, int]] = set()
    members: list[Member] = []
    for count, member_id in enumerate(sorted(found.members, key=found.rank), 1):
        if not count % _STEP:
            yield
        member = found.members[member_id]
        current = found.currents.get(member_id)
        if current is not None:
            member = replace(
                member,
                epoch=current.epoch,
                previous_epoch=current.previous_epoch,
                state=current.state,
                assigned=_take(taken, current.assigned),
                revoking=_take(taken, current.revoking),
            )
        members.append(member)
    for count, member in enumerate(reversed(members), 1):
        if not count % _STEP:
            yield
        group = yield from pauses(group.with_member(member))
    for regex in sorted(found.regexes):
        group = group.with_regex(regex, found.regexes[regex])
    targets = {member_id: target for member_id, target in found.targets.items() if member_id in group.members}
    return group.with_targets(max(found.assignment_epoch, 0), targets)


def _take(taken: set[tuple[bytes, int]], assignment: Assignment) -> Assignment:
    """Returns the partitions that no other member has taken yet, and records them as taken."""
    places = list(partitions_of(assignment))
    free = [place for place in places if place not in taken]
    taken.update(free)
    return assignment if len(free) == len(places) else assignment_of(free)
