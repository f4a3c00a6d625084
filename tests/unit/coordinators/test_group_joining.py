"""JoinGroup: new, returning and static members, and how long the broker waits for them."""

from __future__ import annotations

import pytest
from tests.support.group_world import RANGE, GroupWorld, subscription

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.group_config import GroupConfig

DELAY_MS = 3_000
BOTH = {"range": subscription("orders"), "sticky": subscription("orders")}


def test_a_member_id_that_no_group_knows_is_refused() -> None:
    world = GroupWorld()
    answer = world.join("g", "nobody")
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.response.member_id == "nobody"
    assert world.find("g") is None


def test_an_empty_group_id_is_refused() -> None:
    assert GroupWorld().join("").error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_out_of_bounds_are_refused(session_ms: int) -> None:
    assert GroupWorld().join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("version", [4, 5, 6, 7, 8, 9])
def test_a_new_dynamic_member_gets_its_id_first(version: int) -> None:
    world = GroupWorld()
    answer = world.join(version=version, client_id="app")
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.response.member_id.startswith("app-")
    assert len(answer.response.member_id) == len("app-") + 36
    assert answer.response.generation_id == -1
    assert answer.response.protocol_name == (None if version >= 7 else "")
    assert world.group("g").state is GroupState.EMPTY


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_new_member_joins_at_once(version: int) -> None:
    world = GroupWorld()
    answer = world.join(version=version)
    assert answer.is_parked
    world.pass_ms(DELAY_MS)
    assert answer.error is ErrorCode.NONE
    assert answer.response.leader == answer.response.member_id
    assert answer.response.protocol_name == "range"


def test_version_0_has_the_session_timeout_for_a_rebalance_timeout() -> None:
    world = GroupWorld()
    world.join(version=0, session_ms=7_000)
    assert world.group("g").rebalance_timeout_ms == 7_000


def test_a_client_without_an_id_can_join() -> None:
    world = GroupWorld()
    assert world.enter(client_id=None).is_parked


def test_an_id_that_is_not_used_in_time_is_forgotten() -> None:
    world = GroupWorld()
    member_id = world.join(session_ms=10_000).response.member_id
    world.pass_ms(9_999)
    assert member_id in world.group("g").pending_joins
    world.pass_ms(1)
    assert world.join("g", member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_member_waits_the_initial_delay_and_leads() -> None:
    world = GroupWorld()
    answer = world.enter()
    world.pass_ms(DELAY_MS - 1)
    assert answer.is_parked
    world.pass_ms(1)
    response = answer.response
    assert (response.error_code, response.generation_id, response.protocol_type) == (0, 1, "consumer")
    assert response.leader == response.member_id
    assert [member.member_id for member in response.members] == [response.member_id]
    assert response.members[0].metadata == RANGE["range"]
    assert world.group("g").state is GroupState.COMPLETING_REBALANCE


def test_the_initial_delay_can_be_nothing() -> None:
    world = GroupWorld(GroupConfig(initial_rebalance_delay_ms=0))
    answer = world.enter()
    world.pass_ms(0)
    assert answer.error is ErrorCode.NONE


def test_members_that_come_during_the_initial_delay_extend_it() -> None:
    world = GroupWorld()
    first = world.enter()
    world.pass_ms(2_000)
    second = world.enter()
    world.pass_ms(1_000)
    assert first.is_parked, "another delay has begun"
    world.pass_ms(2_999)
    assert first.is_parked
    world.pass_ms(1)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2
    assert second.response.members == []
    assert second.response.leader == first.response.member_id


def test_the_initial_delay_is_extended_up_to_the_rebalance_timeout() -> None:
    world = GroupWorld()
    first = world.enter(rebalance_ms=8_000)
    for _ in range(20):
        world.pass_ms(500)
        world.enter(rebalance_ms=8_000)
        if not first.is_parked:
            break
    assert 8_000 <= world.host.clock.now_ms() <= 8_500


def test_protocol_types_must_agree() -> None:
    world = GroupWorld()
    world.stable("g")
    assert world.join("g", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("protocols,protocol_type", [({}, "consumer"), (RANGE, "")])
def test_a_first_member_must_bring_a_protocol(protocols: dict[str, bytes], protocol_type: str) -> None:
    world = GroupWorld()
    answer = world.join("g", protocols=protocols, protocol_type=protocol_type)
    assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_there_must_be_a_protocol_that_all_support() -> None:
    world = GroupWorld()
    world.stable("g", protocols=BOTH)
    assert world.join("g", protocols={"other": b""}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("g", protocols={"other": b"", "sticky": b""}).error is ErrorCode.MEMBER_ID_REQUIRED


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen() -> None:
    world = GroupWorld()
    sticky_first = {"sticky": b"", "range": b"", "own": b""}
    answers = [world.enter(protocols=BOTH), world.enter(protocols=sticky_first), world.enter(protocols=sticky_first)]
    world.pass_ms(2 * DELAY_MS)
    assert {answer.response.protocol_name for answer in answers} == {"sticky"}


def test_a_new_member_makes_all_others_join_again() -> None:
    world = GroupWorld()
    [first] = world.stable("g")
    second = world.enter("g")
    assert second.is_parked
    assert world.group("g").state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat("g", 1, first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join("g", first)
    assert again.response.generation_id == second.response.generation_id == 2
    assert again.response.leader == first


def test_who_does_not_join_again_within_the_rebalance_timeout_is_out() -> None:
    world = GroupWorld()
    first, _ = world.stable("g", 2, rebalance_ms=20_000, session_ms=30_000)
    new = world.enter("g", rebalance_ms=20_000)
    world.join("g", first, rebalance_ms=20_000)
    world.pass_ms(19_999)
    assert new.is_parked
    world.pass_ms(1)
    assert new.response.generation_id == 2
    assert set(world.group("g").members) == {first, new.response.member_id}


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2, rebalance_ms=20_000, session_ms=30_000)
    world.enter("g", rebalance_ms=20_000)
    again = world.join("g", follower, rebalance_ms=20_000)
    world.pass_ms(20_000)
    assert again.response.leader == follower
    assert len(again.response.members) == 2
    assert world.heartbeat("g", 1, leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_all_members() -> None:
    world = GroupWorld()
    world.enter("g", rebalance_ms=20_000)
    world.enter("g", rebalance_ms=50_000)
    assert world.group("g").rebalance_timeout_ms == 50_000


def test_a_new_member_whose_join_takes_too_long_is_dropped() -> None:
    world = GroupWorld(GroupConfig(new_member_join_timeout_ms=30_000))
    world.stable("g", rebalance_ms=1_000_000, session_ms=60_000)
    new = world.enter("g", rebalance_ms=1_000_000)
    world.pass_ms(30_000)
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.response.member_id == ""
    assert len(world.group("g").members) == 1


def test_a_pending_member_is_waited_for() -> None:
    world = GroupWorld()
    [first] = world.stable("g")
    pending = world.join("g").response.member_id
    joined = world.join("g", protocols=RANGE, version=3)
    again = world.join("g", first)
    assert again.is_parked, "one was told to come back"
    late = world.join("g", pending)
    assert {len(world.group("g").members), late.response.generation_id} == {3, 2}
    assert joined.error is again.error is ErrorCode.NONE


def test_a_pending_member_that_stays_away_is_waited_for_no_longer_than_its_session() -> None:
    world = GroupWorld()
    [first] = world.stable("g", session_ms=30_000)
    world.join("g", session_ms=6_000)
    new = world.join("g", version=3)
    again = world.join("g", first, session_ms=30_000)
    world.pass_ms(5_999)
    assert again.is_parked
    world.pass_ms(1)
    assert again.response.generation_id == new.response.generation_id == 2


def test_joining_again_unchanged_while_the_assignment_is_awaited_repeats_the_answer() -> None:
    world = GroupWorld()
    joins = [world.enter(), world.enter()]
    world.pass_ms(2 * DELAY_MS)
    for join in joins:
        repeated = world.join("g", join.response.member_id)
        assert repeated.response == join.response
    assert world.group("g").state is GroupState.COMPLETING_REBALANCE


def test_joining_again_changed_while_the_assignment_is_awaited_starts_over() -> None:
    world = GroupWorld()
    joins = [world.enter(), world.enter()]
    world.pass_ms(2 * DELAY_MS)
    first, second = (join.response.member_id for join in joins)
    waiting = world.sync("g", 1, second)
    world.join("g", first, protocols={"range": subscription("bills")})
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group("g").state is GroupState.PREPARING_REBALANCE


def test_a_follower_that_joins_a_stable_group_unchanged_starts_nothing() -> None:
    world = GroupWorld()
    _, follower = world.stable("g", 2)
    answer = world.join("g", follower)
    assert answer.response.generation_id == 1
    assert answer.response.members == []
    assert world.group("g").state is GroupState.STABLE


def test_a_follower_that_joins_a_stable_group_changed_starts_a_rebalance() -> None:
    world = GroupWorld()
    _, follower = world.stable("g", 2)
    assert world.join("g", follower, protocols={"range": subscription("bills")}).is_parked
    assert world.group("g").state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_joins_a_stable_group_starts_a_rebalance() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2)
    assert world.join("g", leader).is_parked
    assert world.heartbeat("g", 1, follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_repeated_over_a_new_connection_takes_the_place_of_the_first() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2)
    lost = world.join("g", leader)
    again = world.join("g", leader)
    assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.join("g", follower)
    assert again.response.generation_id == 2
    assert world.group("g").awaiting_joins == 0


def test_a_full_group_takes_no_more_members_but_those_it_has() -> None:
    world = GroupWorld(GroupConfig(group_size_max=2))
    leader, follower = world.stable("g", 2)
    refused = world.join("g", version=3)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.response.member_id == ""
    again = [world.join("g", leader), world.join("g", follower)]
    assert [join.error for join in again] == [ErrorCode.NONE, ErrorCode.NONE]


def test_while_a_rebalance_is_prepared_the_first_to_come_fill_the_group() -> None:
    world = GroupWorld(GroupConfig(group_size_max=2))
    leader, follower = world.stable("g", 2)
    world.join("g", leader)
    new = world.join("g", version=3)
    assert new.is_parked
    assert world.join("g", follower).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert new.response.generation_id == 2
    assert set(world.group("g").members) == {leader, new.response.member_id}


def test_an_existing_member_of_an_empty_generation_is_unknown() -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    world.leave("g", (member, None))
    assert world.group("g").state is GroupState.EMPTY
    assert world.join("g", member).error is ErrorCode.UNKNOWN_MEMBER_ID


# -- static members (KIP-345)


def static_group(world: GroupWorld, *instances: str, protocols: dict[str, bytes] | None = None) -> list[str]:
    """Returns a stable group of static members."""
    joins = [world.join("g", instance_id=name, protocols=protocols or dict(RANGE)) for name in instances]
    world.pass_ms(2 * DELAY_MS)
    members = [join.response.member_id for join in joins]
    world.sync_all("g", 1, members)
    return members


def test_a_static_member_joins_at_once_and_is_named_after_its_instance() -> None:
    world = GroupWorld()
    [member] = static_group(world, "one")
    assert member.startswith("one-")
    assert world.group("g").static_members == {"one": member}


def test_a_restarted_static_follower_takes_its_place_without_a_rebalance() -> None:
    world = GroupWorld()
    leader, old = static_group(world, "one", "two")
    answer = world.join("g", instance_id="two")
    assert (answer.response.generation_id, answer.response.leader) == (1, leader)
    assert not answer.response.skip_assignment
    assert answer.response.members == []
    new = answer.response.member_id
    assert new != old
    assert world.sync("g", 1, new, instance_id="two").response.assignment == f"part of {old}".encode()
    assert world.heartbeat("g", 1, old, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat("g", 1, old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", 1, new, instance_id="two") is ErrorCode.NONE


def test_a_restarted_static_leader_is_asked_not_to_assign() -> None:
    world = GroupWorld()
    static_group(world, "one", "two")
    answer = world.join("g", instance_id="one", version=9)
    assert answer.response.leader == answer.response.member_id
    assert answer.response.skip_assignment
    assert len(answer.response.members) == 2


def test_a_restarted_static_leader_of_an_old_version_gets_the_id_of_its_predecessor() -> None:
    world = GroupWorld()
    old, _ = static_group(world, "one", "two")
    answer = world.join("g", instance_id="one", version=8)
    assert answer.response.leader == old
    assert answer.response.members == []
    assert world.group("g").leader_id == answer.response.member_id


def test_the_replacement_is_in_the_log_before_it_is_answered() -> None:
    world = GroupWorld()
    static_group(world, "one")
    world.log.holding = True
    answer = world.join("g", instance_id="one")
    assert answer.is_parked
    world.log.commit()
    assert answer.error is ErrorCode.NONE
    assert set(world.restart().group("g").members) == {answer.response.member_id}


def test_a_replacement_that_cannot_be_stored_is_undone() -> None:
    world = GroupWorld()
    [old] = static_group(world, "one")
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = world.join("g", instance_id="one")
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuse_with = None
    assert world.heartbeat("g", 1, old, instance_id="one") is ErrorCode.NONE


def test_a_replacement_that_may_yet_be_stored_is_kept() -> None:
    world = GroupWorld()
    [old] = static_group(world, "one")
    world.log.holding = True
    answer = world.join("g", instance_id="one", session_ms=30_000)
    world.pass_ms(world.config.offsets_commit_timeout_ms)
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.commit()
    known = set(world.group("g").members)
    assert old not in known
    again = world.restart()
    assert set(again.group("g").members) == known
    again.log.holding = False
    assert again.join("g", instance_id="one").error is ErrorCode.NONE


def test_an_assignment_that_is_stored_late_is_not_that_of_the_next_generation() -> None:
    world = GroupWorld()
    first, second = world.stable(count=2)
    world.join("g", first)
    world.join("g", second)
    leader, other = world.group("g").leader_id, next(m for m in (first, second) if m != world.group("g").leader_id)
    assert leader is not None
    generation = world.group("g").generation
    world.log.holding = True
    late = world.sync("g", generation, leader, {leader: b"late", other: b"late"})
    assert late.is_parked
    world.join("g", leader, protocols=BOTH)
    world.join("g", other, protocols=BOTH)
    assert world.group("g").generation == generation + 1
    waiting = world.sync("g", generation + 1, other)
    world.log.commit()
    assert waiting.is_parked, "nobody has said who gets what"
    world.log.holding = False
    told = world.sync("g", generation + 1, leader, {leader: b"new", other: b"new"})
    assert (told.response.assignment, waiting.response.assignment) == (b"new", b"new")


def test_a_restarted_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    world = GroupWorld()
    static_group(world, "one", protocols=BOTH)
    answer = world.join("g", instance_id="one", protocols={"sticky": subscription("orders")})
    assert answer.response.generation_id == 2
    assert answer.response.protocol_name == "sticky"


def test_a_static_member_that_restarts_while_the_assignment_is_awaited_starts_over() -> None:
    world = GroupWorld()
    joins = [world.join("g", instance_id=name) for name in ("one", "two")]
    world.pass_ms(2 * DELAY_MS)
    leader = joins[0].response.member_id
    waiting = world.sync("g", 1, joins[1].response.member_id, instance_id="two")
    again = world.join("g", instance_id="two")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert again.is_parked
    assert world.join("g", leader, instance_id="one").response.generation_id == 2


def test_of_two_with_the_same_instance_id_the_later_one_stays() -> None:
    world = GroupWorld()
    first = world.join("g", instance_id="one")
    second = world.join("g", instance_id="one")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    world.pass_ms(2 * DELAY_MS)
    assert second.response.generation_id == 1
    assert len(world.group("g").members) == 1


def test_a_static_member_may_be_late_for_a_rebalance() -> None:
    world = GroupWorld()
    joins = [world.join("g", instance_id=name, rebalance_ms=10_000, session_ms=60_000) for name in ("one", "two")]
    world.pass_ms(2 * DELAY_MS)
    one, two = (join.response.member_id for join in joins)
    world.sync_all("g", 1, [one, two])
    again = world.join("g", one, instance_id="one", rebalance_ms=10_000, session_ms=60_000)
    world.pass_ms(10_000)
    assert [member.group_instance_id for member in again.response.members] == ["one", "two"]


def test_a_rebalance_that_nobody_joins_waits_until_the_sessions_of_static_members_are_over() -> None:
    world = GroupWorld()
    joins = [world.join("g", instance_id=name, rebalance_ms=8_000, session_ms=30_000) for name in ("one", "two")]
    world.pass_ms(2 * DELAY_MS)
    world.sync_all("g", 1, [join.response.member_id for join in joins])
    passer_by = world.join("g", version=3, rebalance_ms=8_000)
    [member_id] = set(world.group("g").members) - {join.response.member_id for join in joins}
    world.leave("g", (member_id, None))
    assert passer_by.error is ErrorCode.UNKNOWN_MEMBER_ID
    world.pass_ms(29_999)
    assert world.group("g").state is GroupState.PREPARING_REBALANCE
    world.pass_ms(1)
    assert world.group("g").state is GroupState.EMPTY
    assert world.group("g").generation == 2


def test_a_stranger_with_a_known_instance_id_is_fenced() -> None:
    world = GroupWorld()
    static_group(world, "one")
    assert world.join("g", "stranger", instance_id="one").error is ErrorCode.FENCED_INSTANCE_ID
    assert world.join("g", "stranger", instance_id="nine").error is ErrorCode.UNKNOWN_MEMBER_ID


# -- the log


def test_a_new_group_is_written_before_it_has_members() -> None:
    world = GroupWorld()
    world.join("g")
    assert [bytes(record.key or b"") for record in world.log.records(world.partition())] == [b"\x00\x02\x00\x01g"]
    assert world.restart().group("g").state is GroupState.EMPTY


def test_a_new_group_that_cannot_be_written_does_not_exist() -> None:
    world = GroupWorld()
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = world.join("g", version=3)
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.find("g") is None
    world.log.refuse_with = None
    world.pass_ms(60_000)
    assert world.stable("g", 2)
