"""Heartbeats of the consumer protocol, one rule at a time: joining, fencing, revoking, leaving, committing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.consumer_members import Consumer, consumer_group, describe, send, settle
from tests.support.group_world import GroupWorld

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request


def refusal(world: GroupWorld, version: int = 1, **fields: Any) -> tuple[ErrorCode, str | None]:
    complete: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    answer = send(world, Request(**{**complete, **fields}), version)
    return answer.error, answer.response.error_message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": []},
            "SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_say_nothing_sensible_are_refused(fields: dict[str, Any], message: str) -> None:
    assert refusal(GroupWorld(), **fields) == (ErrorCode.INVALID_REQUEST, message)


def test_what_cannot_be_done_is_refused_in_kafkas_words() -> None:
    world = GroupWorld(consumer_config=ConsumerConfig(group_size_max=1))
    text = "ServerAssignor best is not supported. Supported assignors: uniform, range."
    assert refusal(world, server_assignor="best") == (ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    code, message = refusal(world, subscribed_topic_names=None, subscribed_topic_regex="(")
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert message is not None
    assert message.startswith("SubscribedTopicRegex `(` is not a valid regular expression: missing )")
    assert refusal(world, member_epoch=3) == (ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    assert Consumer(world, "a").beat() is ErrorCode.NONE
    text = "The consumer group has reached its maximum capacity of 1 members."
    assert refusal(world) == (ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    code, message = refusal(world, member_id="a", member_epoch=3, topic_partitions=None)
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert message == (
        "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (1). "
        "The member must abandon all its partitions and rejoin."
    )


def test_a_partition_is_given_on_only_after_it_was_given_back() -> None:
    world = GroupWorld()
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.beat()
    assert len(first.owned) == 6
    second.beat()
    assert (second.epoch, second.owned) == (2, set())
    first.beat()  # the member has to revoke, and keeps its epoch
    assert (first.epoch, len(first.owned)) == (1, 3)
    second.beat()
    assert second.owned == set()
    assert describe(world, "g")[0].group_state == "Reconciling"
    first.beat()  # has given back
    assert first.epoch == 2
    second.beat()
    assert len(second.owned) == 3
    assert describe(world, "g")[0].group_state == "Stable"


def test_a_member_that_does_not_give_back_in_time_is_thrown_out() -> None:
    world = GroupWorld()
    first, second = Consumer(world, "a", rebalance_ms=12_000), Consumer(world, "b")
    first.beat()
    second.beat()
    request = Request(group_id="g", member_id="a", member_epoch=1)
    for _ in range(4):
        assert send(world, request).error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
        second.beat()
        world.pass_ms(4_000)
    assert set(consumer_group(world).members) == {"b"}
    settle([second])
    assert len(second.owned) == 6
    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_silent_is_thrown_out_after_its_groups_session_timeout() -> None:
    world = GroupWorld(overrides={("g", "consumer.session.timeout.ms"): "50000"})
    Consumer(world, "a").beat()
    world.pass_ms(49_999)
    assert consumer_group(world).members
    world.pass_ms(2)
    assert not consumer_group(world).members
    assert describe(world, "g")[0].group_state == "Empty"


def test_a_groups_own_heartbeat_interval_is_sent_within_the_brokers_bounds() -> None:
    world = GroupWorld(overrides={("g", "consumer.heartbeat.interval.ms"): "7000"})
    assert Consumer(world, "a").send().response.heartbeat_interval_ms == 7_000
    assert Consumer(world, "a", group_id="h").send().response.heartbeat_interval_ms == 5_000
    world.overrides["h", "consumer.heartbeat.interval.ms"] = "60000"
    assert Consumer(world, "b", group_id="h").send().response.heartbeat_interval_ms == 15_000


def test_a_member_that_missed_an_answer_goes_on() -> None:
    world = GroupWorld()
    member = Consumer(world, "a")
    member.beat()
    member.subscribe(["orders", "bills"])
    member.send()  # the answer is lost
    assert consumer_group(world).members["a"].epoch == 2
    assert member.beat() is ErrorCode.NONE
    assert (member.epoch, len(member.owned)) == (2, 9)


def test_a_fenced_member_comes_back_with_what_was_its() -> None:
    world = GroupWorld()
    member = Consumer(world, "a")
    member.beat()
    member.epoch = 7
    assert member.beat() is ErrorCode.FENCED_MEMBER_EPOCH
    assert member.beat() is ErrorCode.NONE
    assert (member.epoch, len(member.owned)) == (1, 6)


def test_a_static_member_that_left_for_a_while_gets_its_part_again_without_a_rebalance() -> None:
    world = GroupWorld()
    first, second = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    settle([first, second])
    part, epoch = set(first.owned), consumer_group(world).epoch
    assert refusal(world, member_id="c", instance_id="i") == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member c with instance id i cannot join the group because the instance id is owned by a member.",
    )
    assert first.leave(-2) is ErrorCode.NONE
    back = Consumer(world, "c", instance_id="i")
    settle([back, second])
    assert (back.owned, consumer_group(world).epoch) == (part, epoch)
    assert refusal(world, member_id="a", instance_id="i", member_epoch=epoch) == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member a with instance id i was fenced by member c.",
    )
    assert back.leave(-2) is ErrorCode.NONE
    world.pass_ms(40_000)
    second.beat()
    world.pass_ms(6_000)
    settle([second])
    assert len(second.owned) == 6


def test_expressions_stand_for_the_topics_of_the_moment() -> None:
    world = GroupWorld()
    member = Consumer(world, "a", None, regex="(orders|goods).*")
    settle([member])
    assert {name for name, _ in member.owned} == {"orders"}
    world.topics["goods-2"] = 2
    world.pass_ms(11_000)
    settle([member])
    assert {name for name, _ in member.owned} == {"orders", "goods-2"}
    del world.topics["orders"]
    world.pass_ms(11_000)
    settle([member])
    assert {name for name, _ in member.owned} == {"goods-2"}
    again = world.restart()
    world.pass_ms(10)
    assert consumer_group(again).regexes["(orders|goods).*"].topics == {"goods-2"}


def test_new_partitions_are_shared_at_the_next_heartbeat() -> None:
    world = GroupWorld()
    member = Consumer(world, "a")
    settle([member])
    world.topics["orders"] = 8
    settle([member])
    assert len(member.owned) == 8


def test_who_is_behind_may_not_commit() -> None:
    world = GroupWorld()
    member = Consumer(world, "a")
    member.beat()
    place = ("orders", 0)

    def commit(epoch: int, version: int = 9, member_id: str = "a") -> ErrorCode:
        answer = world.commit("g", {place: 5}, generation=epoch, member_id=member_id, version=version)
        return ErrorCode(answer.response.topics[0].partitions[0].error_code)

    assert commit(0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(1, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(1, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(-1, member_id="") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(1) is ErrorCode.NONE
    member.leave()
    assert commit(-1, member_id="") is ErrorCode.NONE
    assert world.find("g") is None, "its offsets do not make it a classic group"


def test_members_that_come_at_once_are_written_together() -> None:
    world = GroupWorld()
    Consumer(world, "first").beat()
    world.log.holding = True
    members = [Consumer(world, f"m{index}") for index in range(20)]
    answers = [member.send() for member in members]
    written = world.log.next_offset[world.partition()]
    assert all(answer.is_parked for answer in answers)
    world.log.commit(1)
    assert [answer.is_parked for answer in answers] == [False] + 19 * [True]
    world.log.commit(1)
    assert not any(answer.is_parked for answer in answers)
    assert {answer.error for answer in answers} == {ErrorCode.NONE}
    assert world.log.next_offset[world.partition()] > written


def test_a_heartbeat_that_changes_nothing_does_not_wait_for_those_that_do() -> None:
    world = GroupWorld()
    member = Consumer(world, "a")
    settle([member])
    end = world.log.next_offset[world.partition()]
    assert member.beat() is ErrorCode.NONE
    assert world.log.next_offset[world.partition()] == end
    world.log.holding = True
    other = Consumer(world, "b").send()
    assert other.is_parked
    assert member.beat() is ErrorCode.NONE


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_what_could_not_be_written_did_not_happen(code: ErrorCode) -> None:
    world = GroupWorld()
    Consumer(world, "a").beat()
    before = consumer_group(world)
    world.log.refuse_with = code
    answer = Consumer(world, "b").send()
    assert answer.error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    assert consumer_group(world) == before
    world.log.refuse_with = None
    assert Consumer(world, "b").beat() is ErrorCode.NONE


def test_what_takes_too_long_is_answered_and_counts_all_the_same() -> None:
    world = GroupWorld(GroupConfig(offsets_commit_timeout_ms=5_000))
    world.log.holding = True
    first, second = Consumer(world, "a").send(), Consumer(world, "b").send()
    world.pass_ms(5_001)
    assert {first.error, second.error} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.log.holding = False
    world.log.commit()
    assert set(consumer_group(world).members) == {"a"}


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    world = GroupWorld()
    member = Consumer(world, "a")
    member.beat()
    world.commit("g", {("orders", 0): 5}, generation=1, member_id="a")
    assert [one.error_code for one in world.delete("g").response.results] == [ErrorCode.NON_EMPTY_GROUP]
    member.leave()
    assert [one.error_code for one in world.delete("g").response.results] == [ErrorCode.NONE]
    assert world.offsets("g") == {}
    assert describe(world, "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    again = world.restart()
    world.pass_ms(10)
    assert describe(again, "g")[0].error_message == "Group g not found."


def test_listed_and_described_by_type() -> None:
    world = GroupWorld(GroupConfig(initial_rebalance_delay_ms=0))
    Consumer(world, "a", group_id="new").beat()
    world.stable("old")
    assert [one.group_id for one in world.list(types=["Consumer"]).response.groups] == ["new"]
    assert [one.group_id for one in world.list(types=["classic"]).response.groups] == ["old"]
    assert describe(world, "old")[0].error_message == "Group old is not a consumer group."
    described = world.describe("new")
    assert (described.error_code, described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group new is not a classic group.",
    )
