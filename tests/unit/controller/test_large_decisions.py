"""Decisions about thousands of partitions: in portions, one turn of the event loop for each."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time_ns

import pytest
from tests.support.core_speed import usual_ms
from tests.support.node_world import NodeWorld
from tests.support.wired import WiredBroker

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.controller.listener import ControllerListener
from barnabas.controller.requests.result import ControllerEvent
from barnabas.metadata.image import BROKER_RESOURCE
from barnabas.metadata.topics import NO_LEADER, PartitionImage
from barnabas.protocol.messages.broker_registration import BrokerRegistrationResponse
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

COUNT = 2 * PARTITIONS_IN_PORTION + 500
SESSION_MS = 9_000
AFTER_A_SESSION_MS = SESSION_MS * 5 // 4


class World(NodeWorld):
    """A node that notes the causes of all its decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: list[ControllerEvent] = []
        self.controller.listen(ControllerListener(lambda: None, lambda offset, cause: self.causes.append(cause.event)))


def partitions(world: NodeWorld, topic: str = "big") -> tuple[PartitionImage, ...]:
    return tuple(world.image.topics_by_name[topic].partitions)


def create(world: NodeWorld, name: str, count: int) -> list[CreateTopicsResponse]:
    answers: list[CreateTopicsResponse] = []
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    world.controller.create_topics(CreateTopicsRequest(topics=[topic]), answers.append)
    return answers


def grow(world: NodeWorld, name: str, count: int) -> list[CreatePartitionsResponse]:
    answers: list[CreatePartitionsResponse] = []
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    world.controller.create_partitions(CreatePartitionsRequest(topics=[topic]), answers.append)
    return answers


@pytest.fixture
def world() -> World:
    """Two brokers; broker 1 has all replicas of a topic with two and a half portions of partitions."""
    made = World()
    made.join()
    answers = create(made, "big", COUNT)
    made.host.time.run_for(0)
    assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.NONE]
    assert made.register(2).error_code == ErrorCode.NONE
    assert not made.beat(2).is_fenced
    return made


def led(world: NodeWorld) -> int:
    return sum(partition.leader == 1 for partition in partitions(world))


def keep_alive(world: NodeWorld, broker_id: int, duration_ms: int) -> None:
    for _ in range(duration_ms // 1_000):
        world.beat(broker_id)
        world.host.time.run_for(1_000)


def test_a_dead_broker_is_fenced_in_portions(world: World) -> None:
    sizes: list[int] = []
    world.store.subscribe(lambda delta, image: sizes.append(led(world)))
    keep_alive(world, 2, AFTER_A_SESSION_MS)
    assert world.causes.count(ControllerEvent.SESSION_EXPIRED) == 3
    assert world.image.brokers[1].fenced
    assert led(world) == 0
    fewer = sorted(set(sizes), reverse=True)
    assert fewer == [COUNT, COUNT - PARTITIONS_IN_PORTION, COUNT - 2 * PARTITIONS_IN_PORTION, 0]


def test_other_decisions_are_made_between_the_portions(world: World) -> None:
    keep_alive(world, 2, SESSION_MS - 1_000)
    seen: list[tuple[int, bool]] = []

    def look(*_: object) -> None:
        count = led(world)
        if not seen and 0 < count < COUNT:
            answers = create(world, "meanwhile", 1)
            seen.append((count, world.controller.image.brokers[1].fenced))
            world.host.time.call_soon(lambda: seen.append((answers[0].topics[0].error_code, False)))

    world.store.subscribe(look)
    world.beat(2)
    keep_alive(world, 2, 4_000)
    assert seen == [(COUNT - PARTITIONS_IN_PORTION, False), (ErrorCode.NONE, False)]
    assert world.image.brokers[1].fenced
    assert led(world) == 0


def test_a_broker_leads_again_in_portions_after_it_was_unfenced(world: World) -> None:
    keep_alive(world, 2, AFTER_A_SESSION_MS)
    assert all(partition.leader == NO_LEADER for partition in partitions(world))
    before = world.causes.count(ControllerEvent.UNFENCED)
    answers = world.begin_beat(1)
    assert led(world) == PARTITIONS_IN_PORTION
    assert not world.image.brokers[1].fenced, "a broker is unfenced before it leads anything"
    assert answers == [], "the answer follows the last portion"
    world.host.time.run_for(0)
    assert led(world) == COUNT
    assert world.causes.count(ControllerEvent.UNFENCED) == before + 3
    assert [answer.is_fenced for answer in answers] == [False]


def test_a_broker_that_is_fenced_between_two_portions_gets_no_more_leaderships(world: World) -> None:
    keep_alive(world, 2, AFTER_A_SESSION_MS)
    world.begin_beat(1)
    world.controller.broker_process_ended(1)
    world.host.time.run_for(0)
    assert world.image.brokers[1].fenced
    assert led(world) == 0


def test_a_new_incarnation_between_two_portions_is_not_fenced(world: World) -> None:
    """The portions of the old incarnation end; those of the registration do the rest."""
    old_epoch = world.image.brokers[1].epoch
    answers: list[int] = []
    pending: list[list[BrokerRegistrationResponse]] = []

    def register_again(*_: object) -> None:
        if not answers and led(world) < COUNT:
            answers.append(0)
            world.host.time.call_soon(lambda: pending.append(world.begin_registration(1)))

    world.store.subscribe(register_again)
    world.controller.broker_disconnected(1, old_epoch)
    world.controller.broker_process_ended(1)
    world.host.time.run_for(0)
    assert [answer.error_code for answer in pending[0]] == [ErrorCode.NONE]
    assert world.image.brokers[1].epoch > old_epoch
    assert led(world) == 0
    answered = world.begin_beat(1)
    world.host.time.run_for(0)
    assert [answer.is_fenced for answer in answered] == [False]
    assert led(world) == COUNT


def test_a_controlled_shutdown_is_answered_after_its_last_portion(world: World) -> None:
    answers = world.begin_beat(1, want_shut_down=True)
    assert answers == []
    assert world.image.brokers[1].in_controlled_shutdown
    world.host.time.run_for(0)
    assert [answer.should_shut_down for answer in answers] == [False], "other brokers have not seen the new leaders"
    assert led(world) == 0
    last = world.image.offset
    world.beat(2)
    assert world.begin_beat(1, want_shut_down=True)[0].should_shut_down, f"everybody has reached {last}"


def test_a_new_incarnation_takes_the_place_of_a_live_one_in_portions(world: World) -> None:
    epoch = world.image.brokers[1].epoch
    world.controller.broker_disconnected(1, epoch)
    answers = world.begin_registration(1)
    assert answers == [], "the answer follows the last portion"
    assert world.image.brokers[1].epoch == epoch
    assert led(world) == COUNT - PARTITIONS_IN_PORTION
    world.host.time.run_for(0)
    assert led(world) == 0
    assert world.image.brokers[1].epoch > epoch
    assert [answer.broker_epoch for answer in answers] == [world.image.brokers[1].epoch]
    assert world.image.brokers[1].epoch == world.image.offset - (COUNT - 2 * PARTITIONS_IN_PORTION)


def test_a_portion_that_comes_after_the_leadership_ended_is_refused(world: World) -> None:
    answers = world.begin_beat(1, want_shut_down=True)
    world.controller.resign()
    world.host.time.run_for(0)
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_CONTROLLER]


def test_a_topic_is_created_completely_though_it_is_decided_in_portions() -> None:
    world = NodeWorld().join()
    visible: list[int] = []

    def look(_: object, image: object) -> None:
        if "big" in world.store.image.topics_by_name:
            visible.append(len(partitions(world)))

    world.store.subscribe(look)
    answers = create(world, "big", COUNT)
    assert answers == []
    world.host.time.run_for(0)
    assert [topic.num_partitions for topic in answers[0].topics] == [COUNT]
    assert visible == [COUNT]
    grown = grow(world, "big", 2 * COUNT)
    world.host.time.run_for(0)
    assert [row.error_code for row in grown[0].results] == [ErrorCode.NONE]
    assert set(visible) == {COUNT, 2 * COUNT}


def test_a_large_topic_is_decided_again_if_the_metadata_changes() -> None:
    world = NodeWorld().join()
    answers = create(world, "big", COUNT)
    others: list[list[CreateTopicsResponse]] = []
    world.host.time.call_soon(lambda: others.append(create(world, "big", 1)))
    world.host.time.run_for(0)
    assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert len(partitions(world)) == 1


def meanwhile(world: NodeWorld, do: Callable[[], object], *, until: list[CreateTopicsResponse]) -> None:
    """Does something in every turn until the response has arrived."""

    def again() -> None:
        if not until:
            do()
            world.host.time.call_soon(again)

    world.host.time.call_soon(again)
    world.host.time.run_for(0)


def test_a_large_topic_is_decided_once_though_other_topics_change_all_the_time() -> None:
    world = NodeWorld().join()
    answers = create(world, "big", COUNT)
    names = iter(range(1_000))
    meanwhile(world, lambda: create(world, f"small-{next(names)}", 1), until=answers)
    assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.NONE]
    assert len(partitions(world)) == COUNT
    made = next(names)
    assert 3 < made < 20, "one attempt has a turn for each portion of the decision, its encoding and its replay"
    assert all(partitions(world, f"small-{number}") for number in range(made))


def test_a_growth_is_decided_once_though_other_topics_change_all_the_time() -> None:
    world = NodeWorld().join()
    create(world, "big", 10)
    world.host.time.run_for(0)
    answers = grow(world, "big", COUNT)
    names = iter(range(1_000))
    meanwhile(world, lambda: create(world, f"small-{next(names)}", 1), until=answers)  # type: ignore[arg-type]
    assert [row.error_code for row in answers[0].results] == [ErrorCode.NONE]
    assert len(partitions(world)) == COUNT
    assert 3 < next(names) < 20


def test_a_large_topic_is_refused_if_every_attempt_is_contradicted() -> None:
    world = NodeWorld().join()
    asked: list[str] = []
    topic = CreateTopicsRequest.CreatableTopic(name="big", num_partitions=COUNT, replication_factor=1)
    answers: list[CreateTopicsResponse] = []
    world.controller.create_topics(
        CreateTopicsRequest(topics=[topic]), answers.append, permit=lambda name, count: asked.append(name)
    )
    values = iter(range(10_000))

    def change_a_default() -> None:
        change = ("log.retention.ms", 0, str(1_000 + next(values)))
        world.controller.alter_configs([(BROKER_RESOURCE, "", [change])], False, lambda results: None)

    meanwhile(world, change_a_default, until=answers)
    assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert "big" not in world.image.topics_by_name
    assert asked == ["big"], "the client's quota is charged once"


def test_a_topic_that_collides_with_one_made_meanwhile_is_refused() -> None:
    world = NodeWorld().join()
    answers = create(world, "big.one", COUNT)
    others: list[list[CreateTopicsResponse]] = []
    world.host.time.call_soon(lambda: others.append(create(world, "big_one", 1)))
    world.host.time.run_for(0)
    assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_large_topic_is_refused_if_the_controller_resigns_meanwhile() -> None:
    world = NodeWorld().join()
    answers = create(world, "big", COUNT)
    world.controller.resign()
    world.host.time.run_for(0)
    assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.NOT_CONTROLLER]


@pytest.mark.long_turns("the best of three attempts is judged: any of them can meet a slow moment of the machine")
def test_the_largest_topic_takes_no_long_turn() -> None:
    """One turn took 140 ms before the decision was made in portions."""
    assert min(longest_turn_ms(), longest_turn_ms(), longest_turn_ms()) < 50


def longest_turn_ms() -> float:
    """Creates the largest topic in a new cluster of one. Returns the CPU time of its longest turn."""
    wired = WiredBroker()
    enter, turns_ms = wired.host.time.enter, [0.0]

    def timed(callback: Callable[[], None]) -> None:
        begin_ns = thread_time_ns()
        enter(callback)
        turns_ms.append(usual_ms((thread_time_ns() - begin_ns) / 1e6))

    wired.host.time.enter = timed  # type: ignore[method-assign]
    gc.disable()
    try:
        wired.create_topic("big", 9_990)
    finally:
        gc.enable()
    assert len(wired.broker.metadata.image.topics_by_name["big"].partitions) == 9_990
    return max(turns_ms)
