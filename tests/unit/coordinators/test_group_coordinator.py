"""The shard that serves a group, the time from which it does, and changes of its leadership."""

from __future__ import annotations

import pytest
from tests.support.group_world import (
    GroupWorld,
    MemoryPartitions,
    commit_errors,
    delete_errors,
    fetched,
    subscription,
)

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, StorageFault
from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.loading import LOAD_SLICE_RECORDS
from barnabas.coordinators.partitioning import java_string_hash, partition_for
from barnabas.coordinators.runtime import ShardState

ORDERS_0 = ("orders", 0)


@pytest.mark.parametrize(
    "text,value",
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", None),
        ("polygenelubricants", -(1 << 31)),
        ("gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", 103 * 31**3 + 114 * 31**2 + 252 * 31 + 110),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hashes_are_those_of_java(text: str, value: int | None) -> None:
    if value is not None:
        assert java_string_hash(text) == value
    assert -(1 << 31) <= java_string_hash(text) < 1 << 31


def test_a_group_lives_on_the_partition_that_kafka_puts_it_on() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("polygenelubricants", 50) == 0


def test_the_configuration_has_kafkas_defaults() -> None:
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
    }
    assert GroupConfig.from_broker(BrokerConfig.from_properties(properties)) == GroupConfig()


def test_other_brokers_groups_are_not_served() -> None:
    world = GroupWorld(lead=False)
    assert world.join("g").error is ErrorCode.NOT_COORDINATOR
    assert world.sync("g", 1, "m").error is ErrorCode.NOT_COORDINATOR
    assert world.heartbeat("g", 1, "m") is ErrorCode.NOT_COORDINATOR
    assert world.leave("g", ("m", None)) == (ErrorCode.NOT_COORDINATOR, [])
    assert commit_errors(world.commit("g", {ORDERS_0: 1}))[ORDERS_0] is ErrorCode.NOT_COORDINATOR
    assert world.delete_offsets("g", [ORDERS_0]).error is ErrorCode.NOT_COORDINATOR
    assert world.describe("g").error_code == ErrorCode.NOT_COORDINATOR
    assert delete_errors(world.delete("g")) == {"g": ErrorCode.NOT_COORDINATOR}
    assert world.list().response.groups == []


def test_while_a_partition_is_loaded_clients_get_a_retriable_error() -> None:
    world = GroupWorld(lead=False)
    world.coordinator.on_partition_leader(0, 0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.join("g").error is loading
    assert world.sync("g", 1, "m").error is loading
    assert world.leave("g", ("m", None)) == (loading, [])
    assert commit_errors(world.commit("g", {ORDERS_0: 1}))[ORDERS_0] is loading
    assert world.fetch("g").response.groups[0].error_code == loading
    assert world.delete_offsets("g", [ORDERS_0]).error is loading
    assert world.describe("g").error_code == loading
    assert delete_errors(world.delete("g")) == {"g": loading}
    assert world.list().error is loading
    assert world.heartbeat("g", 1, "m") is ErrorCode.NONE, "members are not to give up for that"
    world.pass_ms(0)
    assert world.join("g").error is ErrorCode.MEMBER_ID_REQUIRED


def test_when_leadership_goes_all_who_wait_are_sent_away() -> None:
    world = GroupWorld()
    members = [world.enter("g"), world.enter("g")]
    world.pass_ms(6_000)
    syncing = world.sync("g", 1, members[1].response.member_id)
    joining = world.join("other", version=3)
    world.log.holding = True
    committing = world.commit("simple", {ORDERS_0: 1})
    fetching = world.fetch("simple", require_stable=True)
    world.coordinator.on_partition_resigned(0)
    assert joining.error is syncing.error is ErrorCode.NOT_COORDINATOR
    assert commit_errors(committing)[ORDERS_0] is ErrorCode.NOT_COORDINATOR
    assert fetching.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    world.log.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.pass_ms(1_000_000)
    assert world.join("g").error is ErrorCode.NOT_COORDINATOR


def test_resigning_while_loading_stops_it() -> None:
    log = MemoryPartitions()
    GroupWorld(log=log).commit("g", {ORDERS_0: 1})
    world = GroupWorld(log=log, lead=False)
    world.coordinator.on_partition_leader(0, 0)
    shard = world.coordinator.shard(0)
    world.coordinator.on_partition_resigned(0)
    world.pass_ms(1_000)
    assert shard is not None
    assert shard.state is ShardState.CLOSED
    assert log.reads == 0


def test_a_new_epoch_of_the_same_leader_loads_nothing_anew() -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    world.coordinator.on_partition_leader(0, 1)
    assert world.heartbeat("g", 1, member) is ErrorCode.NONE


def test_after_shutdown_there_is_no_coordinator() -> None:
    world = GroupWorld()
    world.coordinator.shutdown()
    assert world.join("g").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat("g", 1, "m") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.list().error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_members_go_on_with_the_new_coordinator_as_if_nothing_had_been() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2)
    world.commit("g", {ORDERS_0: 5}, generation=1, member_id=leader)
    world = world.restart()
    assert world.heartbeat("g", 1, leader) is ErrorCode.NONE
    assert world.sync("g", 1, follower).response.assignment == f"part of {follower}".encode()
    answer = world.commit("g", {ORDERS_0: 6}, generation=1, member_id=follower)
    assert commit_errors(answer)[ORDERS_0] is ErrorCode.NONE
    assert world.group("g").subscribed == frozenset({"orders"})
    assert world.join("g", follower).response.leader == leader


def test_after_loading_every_member_has_a_full_session_timeout() -> None:
    world = GroupWorld()
    leader, follower = world.stable("g", 2, session_ms=10_000)
    world = world.restart()
    world.pass_ms(9_999)
    world.heartbeat("g", 1, leader)
    world.pass_ms(1)
    assert set(world.group("g").members) == {leader}
    assert follower not in world.group("g").members


def test_a_loaded_group_above_the_maximum_size_is_rebalanced() -> None:
    world = GroupWorld()
    world.stable("g", 3)
    smaller = GroupWorld(GroupConfig(group_size_max=2), log=world.log, host=world.host)
    assert smaller.group("g").state is GroupState.PREPARING_REBALANCE


def test_a_rebalance_that_the_old_coordinator_did_not_finish_is_begun_again_by_its_members() -> None:
    world = GroupWorld()
    leader, _ = world.stable("g", 2)
    joining = world.join("g", leader)
    world = world.restart()
    assert joining.error is ErrorCode.NOT_COORDINATOR
    assert world.group("g").generation == 1
    assert world.join("g", leader).is_parked


def test_loading_takes_turns_with_other_work() -> None:
    log = MemoryPartitions()
    writer = GroupWorld(log=log)
    for i in range(10 * LOAD_SLICE_RECORDS):
        writer.commit(f"g{i}", {ORDERS_0: i})
    world = GroupWorld(log=log, lead=False)
    world.coordinator.on_partition_leader(0, 0)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        shard = world.coordinator.shard(0)
        assert shard is not None
        if shard.state is ShardState.LOADING:
            world.host.timers.call_soon(count)

    world.host.timers.call_soon(count)
    world.pass_ms(0)
    assert turns > 10
    assert fetched(world.fetch(f"g{i}")) == {ORDERS_0: i}


def test_partitions_are_loaded_one_after_the_other_with_one_slice_in_a_turn() -> None:
    log = MemoryPartitions()
    writer = GroupWorld(log=log, partitions=4)
    for i in range(8 * LOAD_SLICE_RECORDS):
        writer.commit(f"g{i}", {ORDERS_0: i})
    world = GroupWorld(log=log, partitions=4, lead=False)
    for partition in range(4):
        world.coordinator.on_partition_leader(partition, 0)
    before, most_reads, serving = log.reads, 0, []

    def look() -> None:
        nonlocal before, most_reads
        most_reads = max(most_reads, log.reads - before)
        before = log.reads
        serving.append([shard.state is ShardState.ACTIVE for shard in world.coordinator.shards()])
        if not all(serving[-1]):
            world.host.timers.call_soon(look)

    world.host.timers.call_soon(look)
    world.pass_ms(0)
    assert most_reads == 1
    # A partition serves as soon as it is loaded, while the next ones wait.
    assert [True, False, False, False] in serving
    assert [True, True, True, False] in serving
    assert fetched(world.fetch("g77")) == {ORDERS_0: 77}


def test_loading_waits_until_what_it_has_read_is_committed() -> None:
    log = MemoryPartitions()
    old = GroupWorld(log=log)
    old.commit("g", {ORDERS_0: 5})
    log.holding = True
    old.commit("g", {ORDERS_0: 6})
    log.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world = GroupWorld(log=log, lead=False)
    world.coordinator.on_partition_leader(0, 1)
    world.pass_ms(500)
    assert world.join("g").error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    log.committed[world.partition()] = log.next_offset[world.partition()]
    world.pass_ms(200)
    assert fetched(world.fetch("g")) == {ORDERS_0: 6}


def test_a_log_whose_start_was_deleted_is_loaded_from_where_it_begins() -> None:
    log = MemoryPartitions()
    writer = GroupWorld(log=log)
    writer.commit("g", {ORDERS_0: 5})
    first = len(log.logs[writer.partition()])
    writer.commit("g", {("orders", 1): 6})
    world = GroupWorld(log=log, lead=False)
    world.coordinator.on_partition_leader(0, 1)
    del log.logs[world.partition()][:first]
    log.log_start[world.partition()] = 1
    world.pass_ms(0)
    assert fetched(world.fetch("g")) == {("orders", 1): 6}


def test_a_log_that_cannot_be_read_is_reported_and_not_served() -> None:
    class Offline(MemoryPartitions):
        def log_start_offset(self, partition: TopicPartition) -> int:
            raise StorageFault("/data", "it is offline")

    world = GroupWorld(log=Offline())
    shard = world.coordinator.shard(0)
    assert shard is not None
    assert shard.state is ShardState.FAILED
    assert len(world.host.faults.reported) == 1
    assert world.join("g").error is ErrorCode.NOT_COORDINATOR
    assert world.list().response.groups == []
    world.coordinator.on_partition_resigned(0)


def test_groups_are_spread_over_the_partitions() -> None:
    world = GroupWorld(partitions=5)
    names = [f"group-{i}" for i in range(40)]
    for name in names:
        world.commit(name, {ORDERS_0: 1})
    assert all(world.log.records(world.partition(i)) for i in range(5))
    assert {group.group_id for group in world.list().response.groups} == set(names)
    world.coordinator.on_partition_resigned(3)
    left = {group.group_id for group in world.list().response.groups}
    assert left == {name for name in names if world.coordinator.partition_for(name) != 3}
    deleted = delete_errors(world.delete(*names))
    assert {name for name, code in deleted.items() if code is ErrorCode.NONE} == left
    assert list(deleted) == names


# -- ListGroups and DescribeGroups


def test_groups_are_listed_by_state_and_type() -> None:
    world = GroupWorld()
    world.stable("stable")
    world.commit("simple", {ORDERS_0: 1})
    world.join("joining", version=3)
    every = {
        group.group_id: (group.group_state, group.protocol_type, group.group_type)
        for group in world.list().response.groups
    }
    assert every == {
        "stable": ("Stable", "consumer", "classic"),
        "simple": ("Empty", "", "classic"),
        "joining": ("PreparingRebalance", "consumer", "classic"),
    }

    def names(states: list[str], types: list[str]) -> list[str]:
        return [group.group_id for group in world.list(states, types).response.groups]

    assert names(["stable"], []) == ["stable"]
    assert names([" EMPTY ", "PreparingRebalance"], []) == ["simple", "joining"]
    assert names(["NoSuchState"], []) == []
    assert names([], ["Classic"]) == ["stable", "simple", "joining"]
    assert names([], ["consumer"]) == []
    assert names(["Empty"], ["classic", "share"]) == ["simple"]


@pytest.mark.parametrize("version", range(6))
def test_all_versions_of_list_are_served(version: int) -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 1})
    assert [group.group_id for group in world.list(version=version).response.groups] == ["g"]


def test_a_stable_group_is_described_with_all_its_members() -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    group = world.describe("g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    [shown] = group.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "client", "/127.0.0.1")
    assert shown.member_metadata == subscription("orders")
    assert shown.member_assignment == f"part of {member}".encode()


def test_a_group_in_a_rebalance_is_described_without_metadata() -> None:
    world = GroupWorld()
    world.stable("g")
    world.enter("g")
    group = world.describe("g")
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead_or_not_found(version: int) -> None:
    group = GroupWorld().describe("none", version=version)
    assert group.group_state == "Dead"
    if version >= 6:
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
    else:
        assert group.error_code == 0


def test_a_new_coordinator_starts_the_sessions_of_hundreds_of_groups() -> None:
    """The sessions are started in several turns of the loop."""
    world = GroupWorld()
    names = [f"g{number}" for number in range(600)]
    joins = [world.enter(name) for name in names]
    world.pass_ms(2 * world.config.initial_rebalance_delay_ms)
    for name, join in zip(names, joins, strict=True):
        world.sync_all(name, join.response.generation_id, [join.response.member_id])
    world = world.restart()
    world.until_active(1)
    world.pass_ms(60_000)
    assert [name for name in names if world.group(name).members] == []
