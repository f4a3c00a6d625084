"""A write that is neither committed nor refused, because followers do not fetch and the ISR cannot change: each request
is answered, those that come long after the write included.
"""

from __future__ import annotations

import pytest
from tests.support.consumer_members import Consumer, describe, send
from tests.support.group_world import Answer, Context, GroupWorld

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

#: `offsets.commit.timeout.ms`.
TIMEOUT_MS = 5_000


def fetch(world: GroupWorld, *, named: bool = True) -> Answer[OffsetFetchResponse]:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics if named else None)
    answer: Answer[OffsetFetchResponse] = Answer(9)
    world.coordinator.fetch_offsets(Context(9), OffsetFetchRequest(groups=[group], require_stable=True), answer)
    return answer


def heartbeat(member: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["orders"]
        request.topic_partitions = []
    return request


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("after_ms", [0, 1_000, 4_999, 20_000])
def test_a_stable_fetch_waits_no_longer_than_a_commit(after_ms: int, named: bool) -> None:
    world = GroupWorld()
    world.commit("g", {("orders", 0): 45})
    world.log.holding = True
    world.commit("g", {("orders", 0): 245})
    world.pass_ms(after_ms)
    requested = fetch(world, named=named)
    assert requested.is_parked
    world.pass_ms(TIMEOUT_MS - 1)
    assert requested.is_parked
    world.pass_ms(1)
    (group,) = requested.response.groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR
    assert group.topics == []
    # The same shard serves when the commit is through.
    world.log.commit()
    (group,) = fetch(world, named=named).response.groups
    assert [row.committed_offset for topic in group.topics for row in topic.partitions] == [245]


def test_each_fetch_has_its_own_deadline() -> None:
    world = GroupWorld()
    world.log.holding = True
    world.commit("g", {("orders", 0): 245})
    requested = []
    for _ in range(4):
        world.pass_ms(2_000)
        requested.append(fetch(world))
    ended = [2_000 * (place + 1) + TIMEOUT_MS for place in range(4)]
    for now_ms in range(8_000, 20_000, 500):
        assert [not each.is_parked for each in requested] == [now_ms >= end for end in ended]
        world.pass_ms(500)


def test_a_heartbeat_waits_no_longer_than_a_write_of_its_group() -> None:
    world = GroupWorld()
    assert Consumer(world, "a").beat() is ErrorCode.NONE
    world.log.holding = True
    first = send(world, heartbeat("b", 0))
    world.pass_ms(TIMEOUT_MS)
    assert first.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    later = [send(world, heartbeat(f"c{place}", 0)) for place in range(3)]
    world.pass_ms(TIMEOUT_MS - 1)
    assert all(each.is_parked for each in later)
    world.pass_ms(1)
    assert [each.error for each in later] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    world.log.holding = False
    world.log.commit()
    assert Consumer(world, "d").beat() is ErrorCode.NONE
    assert sorted(member.member_id for member in describe(world, "g")[0].members) == ["a", "b", "d"]
