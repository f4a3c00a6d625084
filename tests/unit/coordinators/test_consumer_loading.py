"""The load of consumer groups from a log that says more than it should."""

from __future__ import annotations

from tests.support.finished import finished

from barnabas.coordinators.groups.consumer import consumer_records as r
from barnabas.coordinators.groups.consumer.consumer_loading import GroupLoading
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Member, MemberState, assignment_of

TOPIC = b"t" * 16


def loaded(*members: Member) -> ConsumerGroup:
    records = [r.group_record("g", 9, 0), r.target_epoch_record("g", 9)]
    for member in members:
        records += [finished(r.member_record("g", member)), finished(r.current_record("g", member))]
    loading = GroupLoading()
    for record in records:
        key = r.parse_consumer_key(record.key)
        assert key is not None
        assert record.value is not None
        loading.take(key, record.value)
    groups: list[ConsumerGroup] = []
    for _ in loading.finish(groups.append):
        pass
    return groups[0]


def member(member_id: str, epoch: int, *indexes: int) -> Member:
    assigned = assignment_of((TOPIC, index) for index in indexes)
    return Member(member_id, instance_id="i", epoch=epoch, state=MemberState.STABLE, assigned=assigned)


def test_members_that_came_back_without_their_tombstones_have_what_the_later_ones_leave() -> None:
    """A replica that was away for longer than `delete.retention.ms` has the records of members that left."""
    for old, new in (("a", "b"), ("b", "a")):
        group = loaded(member(old, 3, 0, 1, 2), member(new, 9, 0, 1))
        assert {place[1]: owner for place, owner in group.owners.items()} == {0: new, 1: new, 2: old}
        assert group.members[new].assigned == {TOPIC: frozenset({0, 1})}
        assert group.members[old].assigned == {TOPIC: frozenset({2})}
        assert group.static_ids["i"] == new
