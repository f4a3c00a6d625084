"""Consumer groups put together from the last record of each key, in whatever order these come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from barnabas.coordinators.groups.consumer import records as r
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Assignment, Member, assignment_of, partitions_of
from barnabas.coordinators.groups.consumer.records import ConsumerKey, ConsumerRecordType, Current
from barnabas.coordinators.groups.consumer.regex import ResolvedRegex


@dataclass(slots=True)
class _Found:
    """What the log says of one group."""

    epoch: tuple[int, int] | None = None
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    currents: dict[str, Current] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)


class GroupLoading:
    """`take` every record, then `finish`."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}

    def take(self, key: ConsumerKey, value: bytes) -> None:
        """DecodeError."""
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
                pass  # the next change of the group compares its topics anyway

    def finish(self) -> list[ConsumerGroup]:
        """The groups by id. One without the record of its epoch is none: its last record is written last, and goes
        last."""
        groups = [_build(group_id, found) for group_id, found in sorted(self._found.items()) if found.epoch is not None]
        self._found.clear()
        return groups


def _build(group_id: str, found: _Found) -> ConsumerGroup:
    assert found.epoch is not None
    epoch, metadata_hash = found.epoch
    group = ConsumerGroup(group_id, epoch=epoch, metadata_hash=metadata_hash)
    for member_id in sorted(found.members):
        member = found.members[member_id]
        current = found.currents.get(member_id)
        if current is not None:
            member = replace(
                member,
                epoch=current.epoch,
                previous_epoch=current.previous_epoch,
                state=current.state,
                assigned=_free(group, current.assigned),
                revoking=_free(group, current.revoking),
            )
        group = group.with_member(member)
    for regex in sorted(found.regexes):
        group = group.with_regex(regex, found.regexes[regex])
    targets = {member_id: target for member_id, target in found.targets.items() if member_id in group.members}
    return group.with_targets(found.assignment_epoch, targets)


def _free(group: ConsumerGroup, assignment: Assignment) -> Assignment:
    """What no other member has: of a log in which two have a partition, one has it here."""
    if any(place in group.owners for place in partitions_of(assignment)):
        return assignment_of(place for place in partitions_of(assignment) if place not in group.owners)
    return assignment
