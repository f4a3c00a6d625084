"""Elections on request and by the controller itself: the moves, the refusals, and the reports of lost records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from tests.support.controller_world import ControllerWorld
from tests.support.isr_requests import isr_request, set_isr
from tests.support.node_world import NodeWorld

from barnabas.common.errors import ErrorCode
from barnabas.controller.listener import ControllerListener
from barnabas.controller.requests import brokers, elections, partitions
from barnabas.controller.requests.configs import ConfigChange
from barnabas.controller.requests.result import Cause, ControllerEvent, Result
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.leader_election import Candidates, Election
from barnabas.decisions.leader_election import elect as elect_of
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION, TOPIC_RESOURCE
from barnabas.metadata.topics import NO_LEADER, RECOVERED, RECOVERING
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.records_metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
)

UNCLEAN_KEY = "unclean.leader.election.enable"
Rows = dict[tuple[str, int], tuple[int, str | None]]


@pytest.fixture
def world() -> ControllerWorld:
    """Topic `t`: one partition on 1, 2, 3, led by 1; without ELR."""
    return make_world()


def make_world(*, elr: bool = False) -> ControllerWorld:
    world = ControllerWorld(features={ELR_VERSION: int(elr)})
    for broker_id in (1, 2, 3):
        world.add_broker(broker_id)
    world.create_assigned("t", [1, 2, 3])
    return world


def elect(world: ControllerWorld, kind: int, *partitions: tuple[str, list[int]], everything: bool = False) -> Rows:
    requested = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=ids) for topic, ids in partitions]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None if everything else requested)
    response = world.apply(elections.elect_leaders(world.view(), request, "User:test"))
    return rows(response)


def rows(response: ElectLeadersResponse) -> Rows:
    return {
        (topic.topic, row.partition_id): (row.error_code, row.error_message)
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


def leaderless(world: ControllerWorld) -> None:
    """Makes a partition leaderless: broker 1 was alone in sync and is down; 2 and 3 are up."""
    set_isr(world, [1])
    world.fence(1)
    assert world.partition("t").leader == NO_LEADER


def test_a_preferred_leader_that_is_back_in_sync_is_elected(world: ControllerWorld) -> None:
    world.fence(1)
    world.unfence(1)
    assert world.partition("t").leader == 2
    unavailable = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    assert elect(world, elections.PREFERRED, ("t", [0])) == {("t", 0): unavailable}
    set_isr(world, [1, 2, 3])
    epoch = world.partition("t").leader_epoch
    assert elect(world, elections.PREFERRED, ("t", [0])) == {("t", 0): (0, None)}
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (1, epoch + 1)


@pytest.mark.parametrize("kind", [elections.PREFERRED, elections.UNCLEAN])
def test_what_needs_no_election_and_what_is_not_there(world: ControllerWorld, kind: int) -> None:
    assert elect(world, kind, ("t", [0, 1]), ("u", [0])) == {
        ("t", 0): (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        ("t", 1): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-1"),
        ("u", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as u"),
    }
    assert elect(world, kind, everything=True) == {}


def test_all_partitions_are_answered_for_where_something_was_to_do(world: ControllerWorld) -> None:
    world.create_assigned("u", [2, 1])
    world.fence(1)
    world.unfence(1)
    assert elect(world, elections.PREFERRED, everything=True) == {
        ("t", 0): (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    }


def test_elections_of_all_partitions_are_decided_in_portions(world: ControllerWorld) -> None:
    """All elections were one decision: one turn of the event loop, and one batch in the log."""
    count = 2 * elections.ELECTIONS_PER_BATCH + 500
    world.fence(1)
    world.unfence(1)
    world.create_assigned("a", [2, 1])
    world.create_assigned("wide", *[[1, 2]] * count)
    world.create_assigned("z", [1, 2])
    world.replay(
        [
            (PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, leader=2), 0)
            for topic in world.image.topics()
            for index in range(len(topic.partitions))
            if topic.name in ("wide", "z")
        ]
    )
    request = ElectLeadersRequest(election_type=elections.PREFERRED, topic_partitions=None)
    result, sizes = elections.elect_leaders(world.view(), request, "User:test"), list[int]()
    while True:
        world.replay(result.records)
        sizes.append(len(result.records))
        if result.rest is None:
            break
        result = result.rest(world.view())
    assert sum(sizes) == count + 1
    assert max(sizes) <= elections.ELECTIONS_PER_BATCH
    assert {
        partition.leader for topic in ("wide", "z") for partition in world.image.topics_by_name[topic].partitions
    } == {1}
    names = [row.topic for row in result.response.replica_election_results]
    assert names == ["a", "t", "wide", "z"]
    found = rows(result.response)
    assert found.pop(("t", 0))[0] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert list(found) == [*(("wide", index) for index in range(count)), ("z", 0)]
    assert set(found.values()) == {(0, None)}


def test_a_partition_named_twice_is_elected_once(world: ControllerWorld) -> None:
    leaderless(world)
    epoch = world.partition("t").leader_epoch
    answers = elect(world, elections.UNCLEAN, ("t", [0, 0]))
    assert answers == {("t", 0): (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")}
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (2, epoch + 1)


def test_an_unknown_kind_is_refused(world: ControllerWorld) -> None:
    request = ElectLeadersRequest(
        election_type=7, topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    )
    result = elections.elect_leaders(world.view(), request, "User:test")
    assert (result.records, result.response.error_code) == ([], ErrorCode.INVALID_REQUEST)
    assert rows(result.response) == {("t", 0): (ErrorCode.INVALID_REQUEST, "Unknown election type 7")}


def test_an_unclean_election_on_request_says_what_may_be_lost(world: ControllerWorld) -> None:
    """Guard G13."""
    leaderless(world)
    before = world.image
    request = ElectLeadersRequest(
        election_type=elections.UNCLEAN,
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])],
    )
    result = elections.elect_leaders(world.view(), request, "User:test")
    world.apply(result)
    partition = world.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    epoch = before.topics_by_name["t"].partitions[0].leader_epoch
    assert elections.unclean_leaders(before, result.records) == [
        f"t-0: unclean leader 2 after epoch {epoch}; records that only [1] had are lost"
    ]


def test_an_unclean_election_needs_somebody_alive(world: ControllerWorld) -> None:
    leaderless(world)
    for broker_id in (2, 3):
        world.fence(broker_id)
    assert elect(world, elections.UNCLEAN, ("t", [0])) == {
        ("t", 0): (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    }


def test_an_eligible_leader_is_no_unclean_one() -> None:
    world = make_world(elr=True)
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    assert world.partition("t").isr == ()
    assert world.partition("t").elr == (1, 2)
    world.unfence(3)
    assert world.partition("t").leader == NO_LEADER
    before = world.image
    back = brokers.unfence(world.view(), world.image.brokers[2]).records
    assert elections.unclean_leaders(before, back) == []
    world.replay(back)
    assert (world.partition("t").leader, world.partition("t").leader_recovery_state) == (2, RECOVERED)


def test_the_last_known_leader_leads_again_if_it_is_there_and_a_replica() -> None:
    alone = Candidates(NO_LEADER, (1, 2), (), (), (3,), elr_enabled=True)
    assert elect_of(alone, lambda _: True, Election.ONLINE).leader == NO_LEADER
    assert elect_of(alone._replace(last_known_elr=(2,)), lambda _: True, Election.ONLINE) == (2, True)
    assert elect_of(alone._replace(last_known_elr=(2,)), lambda each: each != 2, Election.ONLINE).leader == NO_LEADER


def test_a_replica_in_a_lost_directory_is_not_elected(world: ControllerWorld) -> None:
    world.fence(1)
    world.unfence(1)
    set_isr(world, [1, 2, 3])
    broker = world.image.brokers[1]
    gone = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=broker.epoch, log_dirs=[b"another directo."])
    world.replay([(gone, 2)])
    unavailable = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    assert elect(world, elections.PREFERRED, ("t", [0])) == {("t", 0): unavailable}
    assert elections.rebalance(world.view()).records == []


def test_settings_decide_which_leaderless_partitions_get_one(world: ControllerWorld) -> None:
    world.create_assigned("u", [1, 2])
    leaderless(world)
    world.apply(elections.unclean_elections_due(world.view()))
    assert world.partition("t").leader == NO_LEADER
    world.configure(TOPIC_RESOURCE, "t", UNCLEAN_KEY, "true")
    result = elections.unclean_elections_due(world.view())
    world.apply(result)
    assert world.partition("t").leader == 2
    assert (result.cause.event, result.cause.detail) == (ControllerEvent.UNCLEAN_ELECTIONS_ALLOWED, "1 partitions")


def test_the_cluster_wide_setting_counts_unless_the_topic_says_no(world: ControllerWorld) -> None:
    leaderless(world)
    world.configure(BROKER_RESOURCE, "", UNCLEAN_KEY, "true")
    world.configure(TOPIC_RESOURCE, "t", UNCLEAN_KEY, "false")
    assert elections.unclean_elections_due(world.view()).records == []


def test_batches_end(world: ControllerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "ELECTIONS_PER_BATCH", 3)
    for name in "abcdefg":
        world.create_assigned(name, [1, 2])
        set_isr(world, [1], name)
    world.create_assigned("w", [3])
    world.fence(1)
    world.configure(BROKER_RESOURCE, "", UNCLEAN_KEY, "true")
    assert batches(world, elections.unclean_elections_due) == [3, 3, 1]
    world.unfence(1)
    for name in "abcdefg":
        set_isr(world, [1, 2], name)
    # `t` stays: its preferred leader is not in sync.
    assert batches(world, elections.rebalance) == [3, 3, 1]
    assert {name: world.partition(name).leader for name in "abtw"} == {"a": 1, "b": 1, "t": 2, "w": 3}


def test_a_search_looks_at_few_partitions_in_a_turn(world: ControllerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of 50,000 topics took one turn of 54 ms."""
    monkeypatch.setattr(partitions, "SEARCHED_AT_ONCE", 4)
    for name in "abcdef":
        world.create_assigned(name, [1], [1])
    world.configure(BROKER_RESOURCE, "", UNCLEAN_KEY, "true")
    names = deque(world.image.topic_names())
    left = []
    while names:
        assert elections.unclean_elections_due(world.view(), names).records == []
        left.append(len(names))
    assert left == [5, 3, 1, 0]


def test_a_changed_topic_is_searched_alone(world: ControllerWorld) -> None:
    """2,000 changed topics were 67 requests, each of which searched all topics."""
    world.create_assigned("u", [1, 2])
    of_topic = (ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="u", name=UNCLEAN_KEY, value="true"), 0)
    of_all = (ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=UNCLEAN_KEY, value="true"), 0)
    other = (ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="1"), 0)
    assert elections.topics_with_changed_rule(world.image, [of_topic, other]) == ["u"]
    assert elections.topics_with_changed_rule(world.image, [of_topic, of_all]) == ["t", "u"]
    assert elections.topics_with_changed_rule(world.image, [other]) == []


def batches(world: ControllerWorld, decide: Callable[..., object]) -> list[int]:
    sizes: list[int] = []
    while True:
        result = decide(world.view())
        records = result.records  # type: ignore[attr-defined]
        if not records:
            return sizes
        sizes.append(len(records))
        world.replay(records)


# -- elections by timers and over the log


def node_world(properties: dict[str, str] | None = None) -> NodeWorld:
    """Returns a world with brokers 1 and 2, and `t` on both, led by 2 though 1 is preferred."""
    world = NodeWorld(properties).join()
    assert world.register(2).error_code == 0
    world.beat(2)
    answers: list[CreateTopicsResponse] = []
    topic = CreateTopicsRequest.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])],
    )
    world.controller.create_topics(CreateTopicsRequest(topics=[topic]), answers.append)
    return world


def keep_alive(world: NodeWorld, seconds: int) -> None:
    for _ in range(seconds):
        for broker_id in (1, 2):
            if not world.image.brokers[broker_id].fenced:
                world.beat(broker_id)
        world.host.timers.run_for(1_000)


def leader(world: NodeWorld) -> int:
    partition = world.image.partition("t", 0)
    assert partition is not None
    return partition.leader


def lose_leader(world: NodeWorld) -> None:
    world.controller.broker_process_ended(2)
    assert world.beat(2).is_fenced is False


def rejoin(world: NodeWorld) -> None:
    answers: list[object] = []
    world.controller.alter_partition(isr_request(world.image, [1, 2]), answers.append)
    assert len(answers) == 1


def test_leaders_come_back_at_the_interval() -> None:
    world = node_world({"leader.imbalance.check.interval.seconds": "30"})
    lose_leader(world)
    rejoin(world)
    keep_alive(world, 25)
    assert leader(world) == 1
    keep_alive(world, 6)
    assert leader(world) == 2


def test_each_batch_of_elections_has_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = node_world({"auto.leader.rebalance.enable": "false"})
    lose_leader(world)
    rejoin(world)
    decide, sizes = elections.rebalance, list[int]()

    def counted(view: ControllerView, names: deque[str]) -> Result[None]:
        result = decide(view, names)
        sizes.append(len(result.records))
        return result

    monkeypatch.setattr(elections, "ELECTIONS_PER_BATCH", 1)
    monkeypatch.setattr(elections, "rebalance", counted)
    world.controller.replication.rebalance_leaders()
    assert (leader(world), sizes) == (2, [1])
    world.host.timers.run_for(0)
    assert sizes == [1, 0]


def test_leaders_stay_where_rebalancing_is_off() -> None:
    world = node_world({"leader.imbalance.check.interval.seconds": "30", "auto.leader.rebalance.enable": "false"})
    lose_leader(world)
    rejoin(world)
    keep_alive(world, 65)
    assert leader(world) == 1


def test_a_controller_that_resigned_holds_no_elections() -> None:
    world = node_world({"leader.imbalance.check.interval.seconds": "30"})
    lose_leader(world)
    rejoin(world)
    world.controller.resign()
    world.host.timers.run_for(100_000)
    assert leader(world) == 1


def test_a_setting_that_allows_unclean_elections_has_effect_at_once() -> None:
    world = node_world()
    causes: list[Cause] = []
    world.controller.listen(ControllerListener(lambda: None, lambda offset, cause: causes.append(cause)))
    world.controller.broker_process_ended(1)
    assert leader(world) == 2
    world.controller.broker_process_ended(2)
    world.beat(1)
    # 2 was alone in sync; with ELR it is eligible and awaited.
    assert leader(world) == NO_LEADER
    answers: list[object] = []
    world.controller.alter_configs(
        [(TOPIC_RESOURCE, "t", [(UNCLEAN_KEY, ConfigChange.SET, "true")])], False, answers.append
    )
    assert leader(world) == 1
    assert world.controller.unclean_election_count == 1
    assert causes[-1].event is ControllerEvent.UNCLEAN_ELECTIONS_ALLOWED
    assert "t-0: unclean leader 1" in causes[-1].detail
    assert "only [2] had" in causes[-1].detail
