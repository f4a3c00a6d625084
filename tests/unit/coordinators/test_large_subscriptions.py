"""Groups of the consumer protocol that subscribe to thousands of topics: they are planned in several turns of the loop,
with the results of one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import pytest
from tests.support.consumer_members import Beat, Consumer, consumer_group, send
from tests.support.group_world import Answer, Context, GroupWorld, assignment, subscription
from tests.support.memory_topics import MemoryTopics
from tests.support.turns import MeasuredTimers, longest_turn_ms

from barnabas.common.continuations import run
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.consumer.topic_summaries import TopicSummary
from barnabas.coordinators.groups.consumer.writes import GroupOperation, Steps, Writes
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.steps import Turns
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request
from barnabas.simulation.host import MemoryHost

COUNT = 8_000
NAMES = [f"t{index}" for index in range(COUNT)]
WORST_MS = 25


class ManyTopics(MemoryTopics):
    """Topics that change by `grow` alone, because a look at thousands of them takes too long for each question."""

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__(counts)
        super()._follow()
        self._by_id = {topic.topic_id: topic for topic in self._known.values()}

    def _follow(self) -> None:
        pass

    def find_id(self, topic_id: bytes) -> TopicSummary | None:
        return self._by_id.get(topic_id)

    def grow(self, name: str) -> None:
        self.counts[name] += 1
        super()._follow()
        self._by_id[self._known[name].topic_id] = self._known[name]


class Measured:
    """A coordinator where 8,000 topics exist, and the longest turn of what it does."""

    def __init__(self) -> None:
        self.host = MemoryHost(seed=7)
        self.host.timers = self.timers = MeasuredTimers(self.host.time)  # type: ignore[assignment]
        self.topics = ManyTopics(dict.fromkeys(NAMES, 1))
        config = GroupConfig(initial_rebalance_delay_ms=0)
        self.world = GroupWorld(config, host=self.host, topics=self.topics, consumer_config=ConsumerConfig())
        self.world.log.bytes_max = 10_000_000

    def longest_ms(self, work: Callable[[], object], for_ms: int = 0) -> float:
        return longest_turn_ms(self.timers, work, for_ms)

    def beat(self, consumer: Consumer) -> float:
        """Sends a heartbeat, and applies the answer. Returns the longest turn."""
        answers = []
        longest_ms = self.longest_ms(lambda: answers.append(consumer.send()))
        assert consumer.take(answers[0]) is ErrorCode.NONE
        return longest_ms


def judge(longest_ms: Callable[[], float]) -> None:
    """Judges the best of three attempts: any of them can meet a slow moment of the machine."""
    found = [longest_ms()]
    while found[-1] >= WORST_MS and len(found) < 3:
        found.append(longest_ms())
    assert found[-1] < WORST_MS, found


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_join_with_thousands_of_names_and_leave(assignor: str) -> None:
    """A join took one turn of 80 ms, and of more than 2 s for the third member, whose subscription differs."""

    def longest_ms() -> float:
        measured = Measured()
        first, second = (Consumer(measured.world, name, NAMES, assignor=assignor) for name in "ab")
        third = Consumer(measured.world, "c", NAMES[COUNT // 10 :], assignor=assignor)
        members = [first, second, third]
        found = [measured.beat(one) for one in members]
        found += [measured.beat(one) for _ in range(3) for one in members]
        owned = [len(one.owned) for one in members]
        assert sum(owned) == COUNT
        assert max(owned) - min(owned) <= (1 if assignor == "uniform" else COUNT)
        assert len(first.owned | second.owned | third.owned) == COUNT
        left: list[Beat] = []
        leave = Request(group_id="g", member_id="c", member_epoch=-1)
        found.append(measured.longest_ms(lambda: left.append(send(measured.world, leave))))
        assert left[0].error is ErrorCode.NONE
        assert set(consumer_group(measured.world).members) == {"a", "b"}
        return max(found)

    judge(longest_ms)


@pytest.mark.parametrize(("regex", "matching"), [("t.*", COUNT), (".*0", COUNT // 10), ("(t+)+x.*y", 0)])
def test_an_expression_is_resolved_in_steps(regex: str, matching: int) -> None:
    def longest_ms() -> float:
        measured = Measured()
        consumer = Consumer(measured.world, "a", None, regex=regex)
        longest_ms = measured.beat(consumer)
        assert len(consumer.owned) == matching
        return longest_ms

    judge(longest_ms)


def test_the_rights_of_thousands_of_topics_are_checked_in_steps() -> None:
    measured = Measured()
    asked: list[int] = []

    def describable(names: Iterable[str]) -> list[str]:
        some = list(names)
        asked.append(len(some))
        return [name for name in some if not name.endswith("7")]

    answer: Beat = Answer(1)
    request = Consumer(measured.world, "a", None, regex="t.*").request()
    measured.world.coordinator.consumer_group_heartbeat(Context(1), request, answer, describable)
    measured.host.time.run_for(0)
    assert answer.error is ErrorCode.NONE
    assert (sum(asked), max(asked) <= COUNT // 10) == (COUNT, True)
    assert len(consumer_group(measured.world).regexes["t.*"].topics) == COUNT - COUNT // 10


def test_a_large_group_is_described_in_steps() -> None:
    def longest_ms() -> float:
        measured = Measured()
        for index in range(20):
            measured.beat(Consumer(measured.world, f"m{index}", NAMES))
        request = ConsumerGroupDescribeRequest(group_ids=["g"])
        described: list[ConsumerGroupDescribeResponse] = []
        longest = measured.longest_ms(
            lambda: measured.world.coordinator.consumer_group_describe(request, described.append)
        )
        (group,) = described[0].groups
        assert sum(len(member.target_assignment.topic_partitions) for member in group.members) == COUNT
        return longest

    judge(longest_ms)


def test_a_report_of_thousands_of_partitions_is_read_in_steps() -> None:
    """Rows of one topic took time with the square of their number: 20,000 of them took more than a second."""

    def longest_ms() -> float:
        measured = Measured()
        consumer = Consumer(measured.world, "a", ["t1"])
        assert consumer.beat() is ErrorCode.NONE
        topic = measured.topics.id_of("t1")
        rows = [Request.TopicPartitions(topic_id=topic, partitions=[index]) for index in range(20_000)]
        request = Request(group_id="g", member_id="a", member_epoch=consumer.epoch, topic_partitions=rows)
        answers = []
        longest_ms = measured.longest_ms(lambda: answers.append(send(measured.world, request)))
        assert answers[0].error is ErrorCode.NONE
        return longest_ms

    judge(longest_ms)


def test_the_protocols_of_a_classic_member_are_compared_once() -> None:
    """Each protocol of the joining member was looked for in a new copy of the other's: 0.2 s for 3,000 of them."""

    def longest_ms() -> float:
        measured = Measured()
        assert Consumer(measured.world, "a", ["t1"]).beat() is ErrorCode.NONE
        ours, theirs = ({f"{kind}{index}": subscription("t1") for index in range(3_000)} for kind in "pq")
        assert measured.world.enter("g", protocols=ours).error is ErrorCode.NONE
        answers = []
        found = measured.longest_ms(lambda: answers.append(measured.world.join("g", "", protocols=theirs)))
        assert answers[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return found

    judge(longest_ms)


def test_a_classic_group_of_many_members_is_converted_in_steps_and_back() -> None:
    """A group of 5,000 members took one turn of 0.27 s, and one of 0.12 s back."""
    count = 2_000

    def longest_ms() -> float:
        measured = Measured()
        world = measured.world
        protocols = {"range": subscription("t1")}
        asked = [world.join("g", "", protocols=protocols) for _ in range(count)]
        joins = [world.join("g", one.response.member_id, protocols=protocols) for one in asked]
        measured.host.time.run_for(0)
        assert {join.error for join in joins} == {ErrorCode.NONE}
        joined = joins[0].response
        world.sync("g", joined.generation_id, joined.leader, {joined.leader: assignment(("t1", 0))})
        newcomer = Consumer(world, "new", ["t1"])
        upgrade_ms = measured.beat(newcomer)
        assert len(consumer_group(world).members) == count + 1
        assert dict(consumer_group(world).owners) == {(measured.topics.id_of("t1"), 0): joined.leader}
        left: list[Beat] = []
        leave = Request(group_id="g", member_id="new", member_epoch=-1)
        downgrade_ms = measured.longest_ms(lambda: left.append(send(world, leave)))
        assert left[0].error is ErrorCode.NONE
        classic = world.find("g")
        assert classic is not None
        assert len(classic.members) == count
        return max(upgrade_ms, downgrade_ms)

    judge(longest_ms)


def begun(measured: Measured) -> tuple[Consumer, Beat]:
    """Returns a member, and its join, of which one slice is done."""
    consumer = Consumer(measured.world, "a", NAMES)
    answer = consumer.send()
    assert answer.is_parked
    return consumer, answer


def test_requests_wait_for_a_plan_in_progress() -> None:
    measured = Measured()
    consumer, answer = begun(measured)
    second = Consumer(measured.world, "b", ["t1"]).send()
    assert second.is_parked
    measured.host.time.run_for(0)
    assert consumer.take(answer) is ErrorCode.NONE
    assert second.error is ErrorCode.NONE
    assert set(consumer_group(measured.world).members) == {"a", "b"}
    assert len(consumer.owned) == COUNT


def test_a_plan_whose_records_are_too_large_ends_early() -> None:
    def turns_of(bytes_max: int) -> tuple[ErrorCode, int]:
        measured = Measured()
        measured.world.log.bytes_max = bytes_max
        answer = Consumer(measured.world, "a", None, regex="t.*").send()
        measured.host.time.run_for(0)
        turns = measured.timers.turns
        other = Consumer(measured.world, "b", ["t1"]).send()
        measured.host.time.run_for(0)
        assert other.error is ErrorCode.NONE
        return answer.error, turns

    planned, turns = turns_of(10_000_000)
    refused, fewer = turns_of(30_000)
    assert (planned, refused) == (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert fewer < turns / 2, "the expression is resolved, and nothing is assigned"


def test_a_plan_in_progress_ends_with_the_leadership() -> None:
    measured = Measured()
    _, answer = begun(measured)
    measured.world.coordinator.on_partition_resigned(0)
    measured.host.time.run_for(0)
    assert answer.error is ErrorCode.NOT_COORDINATOR
    assert not measured.world.log.logs


def test_a_group_is_compared_again_with_topics_that_change_during_its_plan() -> None:
    measured = Measured()
    consumer, answer = begun(measured)
    measured.topics.grow("t5")
    measured.host.time.run_for(0)
    assert consumer.take(answer) is ErrorCode.NONE
    assert measured.world.coordinator.shard(0) is not None
    for _ in range(3):
        measured.beat(consumer)
    assert ("t5", 1) in consumer.owned
    assert len(consumer.owned) == COUNT + 1


def test_a_plan_is_the_same_after_a_failover() -> None:
    measured = Measured()
    for name in "abc":
        measured.beat(Consumer(measured.world, name, NAMES[ord(name) :]))
    before = consumer_group(measured.world)
    measured.world.coordinator.on_partition_resigned(0)
    measured.world.coordinator.on_partition_leader(0, 1)
    measured.host.time.run_for(1_000)
    assert consumer_group(measured.world) == before


# -- operations in steps


def writes_of(world: GroupWorld) -> Writes:
    shard = world.coordinator.shard(0)
    assert shard is not None
    return shard._context.consumer_writes


def test_an_operation_that_is_refused_in_a_later_step_has_no_effect() -> None:
    world = GroupWorld()
    refused: list[RequestFailed] = []

    def operation(draft: Draft) -> Steps:
        draft.create()
        draft.bump(1)
        draft.effects.append(lambda: pytest.fail("an effect of a refused operation"))
        for _ in range(100):
            yield 1
        raise RequestFailed(ErrorCode.FENCED_MEMBER_EPOCH)

    writes_of(world).submit("g", GroupOperation(operation, refused.append))
    assert refused == []
    world.pass_ms(0)
    assert [failure.code for failure in refused] == [ErrorCode.FENCED_MEMBER_EPOCH]
    assert not world.log.logs
    assert not writes_of(world).slots


class Client:
    """The owner of a request that fails unexpectedly."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("steps", [0, 100])
def test_an_unexpected_failure_is_that_of_one_request(steps: int) -> None:
    """The group was stuck until the coordinator moved."""
    world = GroupWorld()
    client = Client()

    def operation(draft: Draft) -> Steps:
        draft.create()
        draft.bump(1)
        yield from (1 for _ in range(steps))
        raise ZeroDivisionError

    run(client, writes_of(world).submit, "g", GroupOperation(operation, lambda _: None))
    join = Consumer(world, "a").send()
    world.pass_ms(0)
    assert [type(error) for error in client.errors] == [ZeroDivisionError]
    assert join.error is ErrorCode.NONE
    assert set(consumer_group(world).members) == {"a"}


def test_a_turn_of_the_loop_does_one_slice_however_many_groups_have_long_work() -> None:
    host = MemoryHost(seed=7)
    host.timers = timers = MeasuredTimers(host.time)  # type: ignore[assignment]
    world = GroupWorld(host=host)
    turns: list[int] = []

    def operation(_: Draft) -> Generator[int, None, None]:
        for _unit in range(160):
            yield 1
            turns.append(timers.turns)

    for group_id in "abc":
        writes_of(world).submit(group_id, GroupOperation(operation, None))
        turns.clear()
    world.pass_ms(0)
    assert len(turns) > 3 * 120
    assert max(turns.count(turn) for turn in turns) <= 16 + 1


def test_pieces_of_the_queue_survive_a_failing_one() -> None:
    host = MemoryHost(seed=7)
    turns = Turns(host.timers)
    done: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    client = Client()
    run(client, turns.call_soon, fail)
    turns.call_soon(lambda: done.append("second"))
    host.time.run_for(0)
    assert [type(error) for error in client.errors] == [ZeroDivisionError]
    assert done == ["second"]
