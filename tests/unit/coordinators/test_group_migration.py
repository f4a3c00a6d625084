"""Classic groups that become consumer groups while their members continue, and the way back (KIP-848)."""

from __future__ import annotations

import pytest
from tests.support.consumer_members import Consumer, consumer_group, describe, settle
from tests.support.finished import finished
from tests.support.group_world import Answer, Context, GroupWorld, assignment, subscription

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.consumer.embedded import parse_assignment
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

NO_DELAY = GroupConfig(initial_rebalance_delay_ms=0)
RANGE = {"range": subscription("orders")}


ALL = [("orders", index) for index in range(6)]


def classic_world(config: ConsumerConfig | None = None, given: bytes | None = None) -> tuple[GroupWorld, str]:
    """Returns a stable classic group with one member that owns all of `orders`."""
    world = GroupWorld(NO_DELAY, consumer_config=config)
    join = world.enter("g", protocols=RANGE)
    world.pass_ms(0)
    member_id = join.response.member_id
    world.sync("g", 1, member_id, {member_id: assignment(*ALL) if given is None else given})
    return world, member_id


def owned_by(world: GroupWorld, member_id: str) -> set[tuple[str, int]]:
    member = consumer_group(world).members[member_id]
    answer = world.sync("g", member.epoch, member_id)
    assert answer.error is ErrorCode.NONE
    return set(finished(parse_assignment(answer.response.assignment))[0])


def rejoin(world: GroupWorld, member_id: str) -> int:
    """Joins again as an eager consumer, which revokes everything and requests its partitions."""
    join = world.join("g", member_id, protocols=RANGE)
    assert join.error is ErrorCode.NONE
    return join.response.generation_id


def upgraded() -> tuple[GroupWorld, str, Consumer]:
    world, member_id = classic_world()
    newcomer = Consumer(world, "new")
    assert newcomer.beat() is ErrorCode.NONE
    return world, member_id, newcomer


def test_a_classic_group_takes_a_member_of_the_consumer_protocol_and_both_share() -> None:
    world, member_id, newcomer = upgraded()
    group = consumer_group(world)
    assert group.epoch == 2
    assert (newcomer.epoch, newcomer.owned) == (2, set())
    assert {member.member_type for member in describe(world, "g")[0].members} == {0, 1}
    assert world.find("g") is None
    assert world.heartbeat("g", 1, member_id) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(world, member_id) == 2
    assert len(owned_by(world, member_id)) == 3
    settle([newcomer])
    assert len(newcomer.owned) == 3
    assert not newcomer.owned & owned_by(world, member_id)
    assert world.heartbeat("g", 2, member_id) is ErrorCode.NONE


def test_an_upgrade_waits_for_the_writes_of_the_classic_group() -> None:
    world = GroupWorld(NO_DELAY)
    join = world.enter("g", protocols=RANGE)
    world.pass_ms(0)
    world.log.holding = True
    member_id = join.response.member_id
    world.sync("g", 1, member_id, {member_id: assignment(*ALL)})
    end = world.log.next_offset[world.partition()]
    answer: Answer[ConsumerGroupHeartbeatResponse] = Answer(1)
    world.coordinator.consumer_group_heartbeat(Context(1), Consumer(world, "new").request(), answer)
    assert answer.is_parked
    assert world.log.next_offset[world.partition()] == end
    world.log.holding = False
    world.log.commit()
    world.pass_ms(0)
    assert answer.error is ErrorCode.NONE
    assert world.log.next_offset[world.partition()] > end
    assert set(consumer_group(world).members) == {member_id, "new"}


def test_an_upgraded_group_is_the_same_after_a_failover() -> None:
    world, member_id, newcomer = upgraded()
    rejoin(world, member_id)
    settle([newcomer])
    before = consumer_group(world)
    world = world.restart()
    world.pass_ms(10)
    assert consumer_group(world) == before
    assert world.find("g") is None


def test_the_group_is_classic_again_when_its_last_consumer_protocol_member_leaves() -> None:
    world, member_id, newcomer = upgraded()
    rejoin(world, member_id)
    settle([newcomer])
    assert newcomer.leave() is ErrorCode.NONE
    group = world.group("g")
    assert set(group.members) == {member_id}
    assert world.heartbeat("g", group.generation, member_id) is ErrorCode.REBALANCE_IN_PROGRESS
    join = world.join("g", member_id, protocols=RANGE)
    assert join.error is ErrorCode.NONE
    assert join.response.leader == member_id
    sync = world.sync("g", join.response.generation_id, member_id, {member_id: assignment(*ALL)})
    assert sync.response.assignment == assignment(*ALL)
    again = world.restart()
    world.pass_ms(10)
    assert set(again.group("g").members) == {member_id}


def test_the_silent_last_member_leaves_the_group_to_the_classic_ones() -> None:
    world, member_id, newcomer = upgraded()
    rejoin(world, member_id)
    settle([newcomer])
    for _ in range(10):
        world.pass_ms(5_000)
        if world.find("g") is None:
            assert world.heartbeat("g", consumer_group(world).members[member_id].epoch, member_id) is ErrorCode.NONE
    assert set(world.group("g").members) == {member_id}


def test_a_classic_member_joins_a_consumer_group_and_leaves_it() -> None:
    world = GroupWorld(NO_DELAY)
    first = Consumer(world, "a")
    settle([first])
    join = world.enter("g", protocols=RANGE)
    assert join.error is ErrorCode.NONE
    member_id = join.response.member_id
    settle([first])
    assert world.heartbeat("g", join.response.generation_id, member_id) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(world, member_id)
    assert len(owned_by(world, member_id)) == 3
    assert world.leave("g", (member_id, None)) == (ErrorCode.NONE, [ErrorCode.NONE])
    settle([first])
    assert len(first.owned) == 6


def test_a_classic_member_that_does_not_join_again_is_thrown_out() -> None:
    world, member_id, newcomer = upgraded()
    for _ in range(14):
        world.heartbeat("g", 1, member_id)
        newcomer.beat()
        world.pass_ms(5_000)
    assert set(consumer_group(world).members) == {"new"}
    settle([newcomer])
    assert len(newcomer.owned) == 6


def test_classic_members_are_fenced_by_generation_protocol_and_instance() -> None:
    world, member_id, newcomer = upgraded()
    assert world.heartbeat("g", 7, member_id) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("g", 1, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", newcomer.epoch, "new") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("g", 1, member_id).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync("g", 1, member_id, protocol_name="other").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("g", protocols={"mine": b""}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("g", protocols=RANGE, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("config", "given", "why"),
    [
        (ConsumerConfig(may_upgrade=False), None, "online upgrade is disabled."),
        (ConsumerConfig(group_size_max=0), None, "the group size exceeds the consumer group maximum size."),
        (ConsumerConfig(), b"\0", "the embedded consumer protocol is malformed."),
        (ConsumerConfig(), assignment(*ALL, user_data=b"mine"), "an unsupported custom assignor is in use."),
    ],
)
def test_groups_that_cannot_be_upgraded_stay_as_they_are(config: ConsumerConfig, given: bytes, why: str) -> None:
    world, member_id = classic_world(config, given)
    answer = Consumer(world, "new").send()
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (answer.response.error_message or "").startswith(
        f"Cannot upgrade classic group g to consumer group because {why}"
    )
    assert world.heartbeat("g", 1, member_id) is ErrorCode.NONE


def test_an_upgrade_that_cannot_be_written_did_not_happen() -> None:
    world, member_id = classic_world()
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Consumer(world, "new").send().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuse_with = None
    assert world.heartbeat("g", 1, member_id) is ErrorCode.NONE
    assert set(world.group("g").members) == {member_id}


def test_what_comes_while_a_group_is_upgraded_waits_for_what_it_becomes() -> None:
    world, member_id = classic_world()
    world.log.holding = True
    answer = Consumer(world, "new").send()
    join = world.join("g", member_id, protocols=RANGE)
    assert answer.is_parked
    assert join.is_parked
    world.log.holding = False
    world.log.commit()
    assert (answer.error, join.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert set(consumer_group(world).members) == {member_id, "new"}


def test_offsets_outlast_both_ways() -> None:
    world, member_id = classic_world()
    world.commit("g", {("orders", 0): 5}, generation=1, member_id=member_id)
    newcomer = Consumer(world, "new")
    newcomer.beat()
    assert world.offsets("g")["orders", 0].offset == 5
    newcomer.leave()
    assert world.offsets("g")["orders", 0].offset == 5
    assert world.find("g") is not None


def test_empty_groups_change_their_kind_without_a_trace() -> None:
    world = GroupWorld(NO_DELAY)
    world.commit("g", {("orders", 0): 5})
    first = Consumer(world, "a")
    settle([first])
    assert len(first.owned) == 6
    first.leave()
    join = world.enter("g", protocols=RANGE)
    world.pass_ms(0)
    assert join.error is ErrorCode.NONE
    assert set(world.group("g").members) == {join.response.member_id}
    assert describe(world, "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.offsets("g")["orders", 0].offset == 5
