"""Simultaneous requests of many members do not hold the loop, in groups of both protocols."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.group_world import Answer, Context, GroupWorld
from tests.support.memory_topics import MemoryTopics
from tests.support.turns import MeasuredTimers, longest_turn_ms

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.deadlines import Deadlines
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.simulation.host import MemoryHost

WORST_MS = 50
Joined = Answer[ConsumerGroupHeartbeatResponse]


def measured_world(partitions: int = 6) -> tuple[GroupWorld, MeasuredTimers]:
    host = MemoryHost(seed=7)
    host.timers = timers = MeasuredTimers(host.time)  # type: ignore[assignment]
    return GroupWorld(host=host, topics=MemoryTopics({"orders": partitions})), timers


def join_consumer(world: GroupWorld, member_id: str) -> Joined:
    request = ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    answer: Joined = Answer(1)
    world.coordinator.consumer_group_heartbeat(Context(1), request, answer)
    return answer


def joins_during_a_write(world: GroupWorld, count: int) -> list[Joined]:
    """Returns joins of which the first is being written to the log, while the others wait for it."""
    world.log.holding = True
    answers = [join_consumer(world, f"m{n}") for n in range(count)]
    world.log.holding = False
    return answers


def best_of_three(measure: Callable[[], float]) -> None:
    longest_ms = measure()
    for _ in range(2):
        if longest_ms >= WORST_MS:
            longest_ms = min(longest_ms, measure())
    assert longest_ms < WORST_MS


def test_members_of_a_consumer_group_with_many_partitions_that_join_at_once() -> None:
    def measure() -> float:
        world, timers = measured_world(partitions=5_000)
        answers = joins_during_a_write(world, 50)
        longest_ms = longest_turn_ms(timers, world.log.commit)
        assert {answer.error for answer in answers} == {ErrorCode.NONE}
        return longest_ms

    best_of_three(measure)


def test_what_runs_in_several_turns_is_still_one_batch() -> None:
    world, _ = measured_world(partitions=2_000)
    answers = joins_during_a_write(world, 25)
    batches: list[int] = []
    append = world.log.append

    def counted(*args: object) -> None:
        batches.append(len(batches))
        append(*args)  # type: ignore[arg-type]

    world.log.append = counted  # type: ignore[assignment, method-assign]
    world.log.commit()
    assert answers[1].is_parked, "it takes several turns"
    world.pass_ms(0)
    assert {answer.error for answer in answers} == {ErrorCode.NONE}
    assert len(batches) == 1


@pytest.mark.parametrize("turns", [0, 1])
def test_who_waits_while_leadership_goes_is_sent_to_the_next_coordinator(turns: int) -> None:
    world, _ = measured_world(partitions=5_000)
    answers = joins_during_a_write(world, 50)
    world.log.commit()
    assert answers[1].is_parked
    world.coordinator.on_partition_resigned(0)
    world.pass_ms(turns)
    assert {answer.error for answer in answers[1:]} == {ErrorCode.NOT_COORDINATOR}


def test_deadlines_that_fall_due_together_run_in_several_turns() -> None:
    host = MemoryHost(seed=7)
    timers = MeasuredTimers(host.time)
    deadlines = Deadlines(host.clock, timers)
    order: list[int] = []
    turns: list[int] = []

    def due(n: int) -> None:
        order.append(n)
        turns.append(timers.turns)

    for n in range(1_000):
        deadlines.new().schedule(50, lambda n=n: due(n))  # type: ignore[misc]
    host.time.run_for(49)
    assert not order
    host.time.run_for(1)
    assert order == list(range(1_000))
    assert len(set(turns)) == 10
