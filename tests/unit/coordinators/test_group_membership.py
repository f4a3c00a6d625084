"""SyncGroup, Heartbeat, LeaveGroup, and members whose sessions expire."""

from __future__ import annotations

import pytest
from tests.support.group_world import RANGE, GroupWorld, subscription

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.group_records import parse_group

DELAY_MS = 3_000


def completing(world: GroupWorld, count: int = 2, **more: object) -> list[str]:
    """Returns a group whose members have joined generation 1 and not requested their assignments yet; the leader
    first.
    """
    joins = [world.enter("g", **more) for _ in range(count)]
    world.pass_ms(2 * DELAY_MS)
    return [join.response.member_id for join in joins]


# -- SyncGroup


def test_followers_wait_for_the_leaders_assignment() -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    waiting = world.sync("g", 1, follower)
    assert waiting.is_parked
    given = {leader: b"mine", follower: b"yours"}
    assert world.sync("g", 1, leader, given).response.assignment == b"mine"
    assert waiting.response.assignment == b"yours"
    assert (waiting.response.protocol_type, waiting.response.protocol_name) == ("consumer", "range")
    assert world.group("g").state is GroupState.STABLE


def test_a_follower_that_asks_late_gets_its_part_at_once() -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    world.sync("g", 1, leader, {follower: b"yours"})
    assert world.sync("g", 1, follower).response.assignment == b"yours"


def test_who_is_left_out_of_the_assignment_gets_an_empty_one() -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    waiting = world.sync("g", 1, follower)
    world.sync("g", 1, leader, {"stranger": b"lost"})
    assert waiting.response.assignment == b""
    assert waiting.error is ErrorCode.NONE


def test_the_assignment_holds_once_it_is_in_the_log() -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    world.log.holding = True
    syncs = [world.sync("g", 1, follower), world.sync("g", 1, leader, {leader: b"mine", follower: b"yours"})]
    assert [sync.is_parked for sync in syncs] == [True, True]
    assert world.group("g").state is GroupState.COMPLETING_REBALANCE
    world.log.commit()
    assert [sync.response.assignment for sync in syncs] == [b"yours", b"mine"]


def test_a_rebalance_that_begins_while_the_assignment_is_written_wins() -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    world.log.holding = True
    syncs = [world.sync("g", 1, follower), world.sync("g", 1, leader, {follower: b"yours"})]
    world.enter("g")
    assert [sync.error for sync in syncs] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    world.log.commit()
    assert world.group("g").state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    "failure,told",
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_starts_over(failure: ErrorCode, told: ErrorCode) -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    waiting = world.sync("g", 1, follower)
    world.log.refuse_with = failure
    assert world.sync("g", 1, leader, {}).error is told
    assert waiting.error is told
    assert world.group("g").state is GroupState.PREPARING_REBALANCE


def test_an_assignment_that_is_not_committed_in_time_starts_over() -> None:
    world = GroupWorld()
    [leader] = completing(world, 1)
    world.log.holding = True
    sync = world.sync("g", 1, leader, {})
    world.pass_ms(world.config.offsets_commit_timeout_ms)
    assert sync.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.commit()
    assert world.group("g").state is GroupState.PREPARING_REBALANCE


def test_sync_errors() -> None:
    world = GroupWorld()
    leader, follower = completing(world)
    assert world.sync("", 1, leader).error is ErrorCode.INVALID_GROUP_ID
    assert world.sync("none", 1, leader).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("g", 1, "stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("g", 1, leader, instance_id="one").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("g", 0, leader).error is ErrorCode.ILLEGAL_GENERATION
    assert world.sync("g", 2, leader).error is ErrorCode.ILLEGAL_GENERATION
    assert world.sync("g", 1, leader, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("g", 1, leader, protocol_name="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("g", 1, leader, protocol_name=None).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.sync_all("g", 1, [leader, follower])
    world.enter("g")
    assert world.sync("g", 1, follower).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(6))
def test_all_versions_of_sync_are_served(version: int) -> None:
    world = GroupWorld()
    [leader] = completing(world, 1)
    assert world.sync("g", 1, leader, {leader: b"x"}, version=version).response.assignment == b"x"


def test_who_never_asks_for_its_assignment_is_removed_after_the_rebalance_timeout() -> None:
    world = GroupWorld()
    leader, follower = completing(world, 2, rebalance_ms=15_000, session_ms=60_000)
    world.sync("g", 1, leader, {})
    world.pass_ms(14_999)
    assert set(world.group("g").members) == {leader, follower}
    world.pass_ms(1)
    assert set(world.group("g").members) == {leader}
    assert world.heartbeat("g", 1, leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_assigns_is_removed() -> None:
    world = GroupWorld()
    leader, follower = completing(world, 2, rebalance_ms=15_000, session_ms=60_000)
    waiting = world.sync("g", 1, follower)
    world.pass_ms(15_000)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group("g").leader_id == follower
    assert leader not in world.group("g").members


# -- heartbeats and sessions


def test_heartbeat_errors() -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    assert world.heartbeat("", 1, member) is ErrorCode.INVALID_GROUP_ID
    assert world.heartbeat("none", 1, member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", 1, "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", 0, member) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("g", 1, member) is ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
def test_all_versions_of_heartbeat_are_served(version: int) -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    assert world.heartbeat("g", 1, member, version=version) is ErrorCode.NONE


def test_heartbeats_keep_a_session_open() -> None:
    world = GroupWorld()
    [member] = world.stable("g", session_ms=10_000)
    for _ in range(10):
        world.pass_ms(9_999)
        assert world.heartbeat("g", 1, member) is ErrorCode.NONE
    world.pass_ms(10_000)
    assert world.heartbeat("g", 1, member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group("g").state is GroupState.EMPTY


def test_a_member_that_is_silent_is_removed_and_the_others_share_anew() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2, session_ms=10_000)
    world.pass_ms(6_000)
    world.heartbeat("g", 1, follower)
    world.pass_ms(4_000)
    assert set(world.group("g").members) == {follower}
    assert world.heartbeat("g", 1, follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join("g", follower).response.leader == follower
    assert world.heartbeat("g", 1, leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_are_welcome_before_the_assignment() -> None:
    world = GroupWorld()
    leader, _ = completing(world)
    assert world.heartbeat("g", 1, leader) is ErrorCode.NONE


def test_a_parked_join_keeps_its_member_alive() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2, session_ms=6_000, rebalance_ms=300_000)
    again = world.join("g", leader, session_ms=6_000, rebalance_ms=300_000)
    for _ in range(50):
        world.pass_ms(5_000)
        world.heartbeat("g", 1, follower)
    world.join("g", follower, session_ms=6_000, rebalance_ms=300_000)
    assert again.response.generation_id == 2
    assert len(again.response.members) == 2


def test_a_parked_sync_keeps_its_member_alive_and_its_session_begins_anew_after_it() -> None:
    world = GroupWorld()
    leader, follower = completing(world, session_ms=6_000, rebalance_ms=300_000)
    waiting = world.sync("g", 1, follower)
    for _ in range(10):
        world.pass_ms(5_000)
        world.heartbeat("g", 1, leader)
    world.sync("g", 1, leader, {follower: b"yours"})
    assert waiting.response.assignment == b"yours"
    world.pass_ms(5_999)
    assert world.heartbeat("g", 1, follower) is ErrorCode.NONE


# -- LeaveGroup


def test_the_last_member_that_leaves_makes_the_group_empty_and_the_log_says_so() -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    assert world.leave("g", (member, None)) == (ErrorCode.NONE, [ErrorCode.NONE])
    group = world.group("g")
    assert (group.state, group.generation, group.protocol_type) == (GroupState.EMPTY, 2, "consumer")
    last = parse_group(bytes(world.log.records(world.partition())[-1].value or b""))
    assert (last.protocol_type, last.generation, last.protocol, last.leader, last.members) == (
        "consumer", 2, None, None, [],
    )  # fmt: skip


def test_who_leaves_makes_the_others_share_anew() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2)
    world.leave("g", (leader, None))
    assert world.heartbeat("g", 1, follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join("g", follower).response.leader == follower


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_error_of_the_member_is_that_of_all(version: int) -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    assert world.leave("g", ("stranger", None), version=version) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    assert world.leave("none", (member, None), version=version) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    assert world.leave("g", (member, None), version=version) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_leave_together_each_with_its_own_error(version: int) -> None:
    world = GroupWorld()
    joins = [world.join("g", instance_id="one"), world.join("g", instance_id="two"), world.enter("g")]
    world.pass_ms(2 * DELAY_MS)
    one, two, three = (join.response.member_id for join in joins)
    world.sync_all("g", 1, [one, two, three])
    pending = world.join("g").response.member_id
    errors = world.leave(
        "g", ("", "one"), ("stranger", "two"), (three, None), ("stranger", None), ("", "nine"), ("", None),
        (pending, None), version=version,
    )  # fmt: skip
    assert errors == (
        ErrorCode.NONE,
        [
            ErrorCode.NONE,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        ],
    )
    assert set(world.group("g").members) == {two}
    assert not world.group("g").pending_joins


def test_leaving_a_group_that_is_not_there() -> None:
    world = GroupWorld()
    assert world.leave("none", ("a", None), ("b", None)) == (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * 2)
    assert world.leave("", ("a", None)) == (ErrorCode.INVALID_GROUP_ID, [])


def test_leaving_while_others_wait_for_it_lets_them_go_on() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2)
    again = world.join("g", leader)
    assert again.is_parked
    world.leave("g", (follower, None))
    assert again.response.generation_id == 2


def test_a_member_that_is_removed_while_it_waits_gets_an_error() -> None:
    world = GroupWorld()
    joins = [world.join("g", instance_id=name) for name in ("one", "two")]
    world.pass_ms(2 * DELAY_MS)
    two = joins[1].response.member_id
    waiting = world.sync("g", 1, two, instance_id="two")
    world.leave("g", ("", "two"))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    parked = world.join("g", instance_id="two")
    world.leave("g", ("", "two"))
    assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_becomes_empty_during_the_initial_delay_ends_empty() -> None:
    world = GroupWorld()
    joining = world.join("g", version=3)
    [member] = world.group("g").members
    world.leave("g", (member, None))
    assert joining.error is ErrorCode.UNKNOWN_MEMBER_ID
    world.pass_ms(DELAY_MS)
    assert world.group("g").state is GroupState.EMPTY
    assert world.stable("g")


# -- what the broker knows of subscriptions


def test_a_group_knows_the_topics_of_all_members() -> None:
    world = GroupWorld()
    joins = [world.enter("g"), world.enter("g", protocols={"range": subscription("bills", "debts")})]
    world.pass_ms(2 * DELAY_MS)
    assert world.group("g").subscribed == frozenset({"orders", "bills", "debts"})
    for join in joins:
        world.leave("g", (join.response.member_id, None))
    world.pass_ms(60_000)
    assert world.group("g").subscribed == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05ab",
     b"\x00\x00\x00\x00\x00\x01\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x01\xff"],
)  # fmt: skip
def test_metadata_that_is_not_kafkas_is_taken_as_unknown(metadata: bytes) -> None:
    world = GroupWorld()
    world.stable("g", protocols={"range": metadata})
    assert world.group("g").subscribed is None
    assert world.group("g").is_subscribed_to("anything")


def test_other_protocol_types_have_no_subscriptions() -> None:
    world = GroupWorld()
    joins = [world.enter("g", protocol_type="connect", protocols=RANGE)]
    world.pass_ms(DELAY_MS)
    assert joins[0].error is ErrorCode.NONE
    assert world.group("g").subscribed is None
    assert not world.group("g").is_subscribed_to("orders")
