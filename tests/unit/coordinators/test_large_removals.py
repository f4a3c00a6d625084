"""Groups with more offsets than the tombstones in one batch are deleted and expire, in slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.group_world import Answer, Context, GroupWorld, delete_errors
from tests.support.memory_topics import MemoryTopics
from tests.support.turns import MeasuredTimers, longest_turn_ms

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.simulation.host import MemoryHost

MINUTE_MS = 60_000
ROWS = 25_000
#: The maximum number of rows in a commit.
COMMIT_ROWS = 10_000
#: A limit of bytes that is too small for the tombstones of this many offsets.
SOME_ROWS = 5_000
SOME_BYTES = 100_000
WORST_MS = 50


def large_world(rows: int = ROWS, group_ids: tuple[str, ...] = ("g",)) -> GroupWorld:
    config = GroupConfig(offsets_retention_ms=10 * MINUTE_MS, offsets_retention_check_interval_ms=MINUTE_MS)
    world = GroupWorld(config, topics=MemoryTopics({"orders": rows, "bills": 3}), host=MemoryHost(seed=7))
    for group_id in group_ids:
        fill(world, rows, group_id)
    if rows <= SOME_ROWS:
        world.log.bytes_max = SOME_BYTES
    return world


def fill(world: GroupWorld, rows: int, group_id: str) -> None:
    count = min(COMMIT_ROWS, 1_000_000 // (len(group_id) + 80))
    for start in range(0, rows, count):
        world.commit(group_id, {("orders", n): n for n in range(start, min(start + count, rows))})
        world.pass_ms(0)
    assert len(world.offsets(group_id)) == rows


def check_gone(world: GroupWorld, group_id: str = "g") -> None:
    """Checks that the group is gone, in memory and where the log is read again."""
    assert world.find(group_id) is None
    assert not world.offsets(group_id)
    again = world.restart()
    assert again.find(group_id) is None
    assert not again.offsets(group_id)


def check_begun(world: GroupWorld) -> set[tuple[str, int]]:
    """Checks that the first offsets of a large world are gone. Returns those that are left."""
    left = set(world.offsets("g"))
    assert 0 < len(left) < SOME_ROWS
    assert left == {("orders", n) for n in range(SOME_ROWS - len(left), SOME_ROWS)}
    return left


def test_a_large_group_is_deleted() -> None:
    world = large_world()
    answer = world.delete("g")
    assert answer.is_parked, "it takes several batches"
    world.pass_ms(0)
    assert delete_errors(answer) == {"g": ErrorCode.NONE}
    check_gone(world)


def test_a_large_group_expires() -> None:
    world = large_world()
    world.pass_ms(12 * MINUTE_MS)
    check_gone(world)


def test_many_offsets_are_deleted() -> None:
    world = large_world(SOME_ROWS)
    answer = world.delete_offsets("g", [("orders", n) for n in range(SOME_ROWS - 1)])
    world.pass_ms(0)
    assert answer.error is ErrorCode.NONE
    assert list(world.offsets("g")) == [("orders", SOME_ROWS - 1)]
    assert list(world.restart().offsets("g")) == [("orders", SOME_ROWS - 1)]


def test_the_offsets_of_a_deleted_topic_go() -> None:
    world = large_world(SOME_ROWS)
    world.commit("g", {("bills", 0): 1})
    world.coordinator.on_partitions_deleted([TopicPartition("orders", n) for n in range(SOME_ROWS)])
    world.commit("late", {("bills", 1): 1})
    world.pass_ms(0)
    assert list(world.offsets("g")) == [("bills", 0)]
    again = world.restart()
    assert list(again.offsets("g")) == [("bills", 0)]
    assert list(again.offsets("late")) == [("bills", 1)]


def test_what_is_committed_for_the_next_topic_of_the_name_stays() -> None:
    world = large_world(3_000)
    world.log.holding = True
    world.coordinator.on_partitions_deleted([TopicPartition("orders", n) for n in range(3_000)])
    world.pass_ms(5)
    world.commit("g", {("orders", 2_999): 7})
    world.log.holding = False
    world.log.commit()
    world.pass_ms(5)
    assert {place: one.offset for place, one in world.offsets("g").items()} == {("orders", 2_999): 7}


def test_offsets_that_are_committed_while_their_group_expires_stay() -> None:
    world = large_world(3_000)
    world.log.holding = True
    world.pass_ms(11 * MINUTE_MS)
    world.commit("g", {("orders", 2_999): 7})
    world.log.holding = False
    world.log.commit()
    world.pass_ms(5)
    assert {place: one.offset for place, one in world.offsets("g").items()} == {("orders", 2_999): 7}
    assert world.restart().offsets("g").keys() == {("orders", 2_999)}


def test_a_member_that_comes_while_its_group_is_deleted_keeps_it() -> None:
    world = large_world(SOME_ROWS)
    world.log.holding = True
    answer = world.delete("g", "g2")
    world.enter("g")
    world.log.holding = False
    world.log.commit()
    world.pass_ms(5)
    assert delete_errors(answer) == {"g": ErrorCode.NON_EMPTY_GROUP, "g2": ErrorCode.GROUP_ID_NOT_FOUND}
    assert len(world.group("g").members) == 1
    check_begun(world)


def test_large_and_small_groups_are_deleted_together() -> None:
    names = ("a", "b", "c")
    world = large_world(1_500, names)
    answer = world.delete(*names, "nobody")
    world.pass_ms(0)
    expected = dict.fromkeys(names, ErrorCode.NONE) | {"nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert delete_errors(answer) == expected
    again = world.restart()
    assert not any(again.find(name) or again.offsets(name) for name in names)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
def test_a_failure_in_the_middle_leaves_the_group_to_be_deleted_again(code: ErrorCode) -> None:
    world = large_world(SOME_ROWS)
    world.log.holding = True
    answer = world.delete("g")
    world.log.commit()
    world.pass_ms(0)  # the second slice is being written
    world.log.refuse_with = code
    world.log.holding = False
    world.log.commit()
    world.pass_ms(0)
    assert delete_errors(answer) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    check_begun(world)
    world.log.refuse_with = None
    answer = world.delete("g")
    world.pass_ms(0)
    assert delete_errors(answer) == {"g": ErrorCode.NONE}
    check_gone(world)


def test_an_expiry_that_fails_in_the_middle_is_tried_again() -> None:
    world = large_world(SOME_ROWS)
    world.log.holding = True
    world.pass_ms(10 * MINUTE_MS)
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.log.holding = False
    world.log.commit()
    world.pass_ms(0)
    check_begun(world)
    world.log.refuse_with = None
    world.pass_ms(2 * MINUTE_MS)
    check_gone(world)


def test_an_expiry_that_failed_is_the_same_for_the_next_coordinator() -> None:
    world = large_world(SOME_ROWS)
    world.log.holding = True
    world.pass_ms(10 * MINUTE_MS)
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.log.holding = False
    world.log.commit()
    world.pass_ms(0)
    left = check_begun(world)
    assert world.restart().offsets("g").keys() == left


def test_leadership_that_goes_in_the_middle_ends_a_deletion() -> None:
    world = large_world(SOME_ROWS)
    answer = world.delete("g")
    again = world.restart()
    assert delete_errors(answer) == {"g": ErrorCode.NOT_COORDINATOR}
    left = check_begun(again)
    world.pass_ms(1_000)
    assert again.restart().offsets("g").keys() == left


def join_consumer(world: GroupWorld, epoch: int = 0) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["bills"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    answer: Answer[ConsumerGroupHeartbeatResponse] = Answer(1)
    world.coordinator.consumer_group_heartbeat(Context(1), request, answer)
    assert answer.error is ErrorCode.NONE


@pytest.mark.parametrize("how", ["delete", "expire"])
def test_a_large_consumer_group_goes(how: str) -> None:
    world = large_world(SOME_ROWS)
    join_consumer(world)
    join_consumer(world, -1)
    shard = world.coordinator.shard(0)
    assert shard is not None
    assert shard.consumers.find("g") is not None
    if how == "delete":
        answer = world.delete("g")
        world.pass_ms(0)
        assert delete_errors(answer) == {"g": ErrorCode.NONE}
    else:
        world.pass_ms(12 * MINUTE_MS)
    assert shard.consumers.find("g") is None
    check_gone(world)


def test_slices_of_long_group_ids_fit_into_batches() -> None:
    group_id = "g" * 30_000
    world = large_world(300, (group_id,))
    world.log.bytes_max = 1_048_588
    answer = world.delete(group_id)
    world.pass_ms(0)
    assert delete_errors(answer) == {group_id: ErrorCode.NONE}
    check_gone(world, group_id)


ALL = [TopicPartition("orders", n) for n in range(ROWS)]
REMOVALS: dict[str, Callable[[GroupWorld], object]] = {
    "delete": lambda world: world.delete("g"),
    "topic": lambda world: world.coordinator.on_partitions_deleted(ALL),
    "expire": lambda world: None,
}


@pytest.mark.parametrize("how", REMOVALS)
def test_no_removal_holds_the_loop(how: str) -> None:
    longest_ms = measured(how)
    for _ in range(2):
        if longest_ms >= WORST_MS:
            longest_ms = min(longest_ms, measured(how))
    assert longest_ms < WORST_MS


def measured(how: str) -> float:
    world = large_world()
    timers = MeasuredTimers(world.host.time)
    if how == "expire":
        world.pass_ms(9 * MINUTE_MS + 59_000)
    world.host.timers = timers  # type: ignore[assignment]
    longest_ms = longest_turn_ms(timers, lambda: REMOVALS[how](world), 2 * MINUTE_MS if how == "expire" else 0)
    assert not world.offsets("g")
    assert timers.turns > 10
    return longest_ms
