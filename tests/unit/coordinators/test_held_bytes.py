"""Bytes of the metadata of classic group members: counted as members join and leave, and bounded."""

from __future__ import annotations

from tests.support.group_world import GroupWorld, subscription

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import memory_of

LARGE = {"range": subscription("orders") + bytes(100_000)}
WEIGHT = memory_of(LARGE)


def counted(world: GroupWorld) -> int:
    """Returns the sum over all members."""
    return sum(
        memory_of(member.protocols)
        for shard in world.coordinator.shards()
        for group in shard.groups()
        for member in group.members.values()
    )


def test_members_are_counted_as_they_come_and_go() -> None:
    world = GroupWorld()
    held = world.coordinator.held
    members = world.stable("g", 3, protocols=LARGE)
    assert held.bytes == counted(world) == 3 * WEIGHT
    world.join("g", members[1])  # fewer bytes than before
    assert held.bytes == counted(world) < 3 * WEIGHT
    world.leave("g", (members[0], None))
    assert held.bytes == counted(world)
    world.join("static", instance_id="one", protocols=LARGE)
    world.pass_ms(10_000)
    world.join("static", instance_id="one", protocols=LARGE)
    assert held.bytes == counted(world)
    world.pass_ms(600_000)  # all sessions are over
    assert held.bytes == counted(world) == 0


def test_they_count_again_where_the_group_is_loaded_and_no_longer_where_it_was() -> None:
    world = GroupWorld()
    world.stable("g", 2, protocols=LARGE)
    before = world.coordinator
    world = world.restart()
    assert before.held.bytes == 0
    assert world.coordinator.held.bytes == counted(world) == 2 * WEIGHT


def test_above_the_limit_a_member_gets_a_retriable_error() -> None:
    world = GroupWorld()
    held = world.coordinator.held
    held.bytes_max = 2 * WEIGHT + 500
    members = world.stable("g", 2, protocols=LARGE)
    pending = world.join("other", protocols=LARGE)
    assert pending.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.find("other") is None
    # A present member continues, and can use less.
    assert world.heartbeat("g", 1, members[1]) is ErrorCode.NONE
    assert world.join("g", members[1], protocols=LARGE).error is ErrorCode.NONE
    world.leave("g", (members[1], None))
    assert world.join("other", protocols=LARGE).error is ErrorCode.MEMBER_ID_REQUIRED


def test_what_no_record_of_the_group_could_hold_is_refused_at_once() -> None:
    world = GroupWorld()
    assert world.join("g", protocols={"range": bytes(2_000_000)}).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.find("g") is None
    assert world.coordinator.held.bytes == 0
