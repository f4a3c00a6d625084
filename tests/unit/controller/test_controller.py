"""The controller over a real quorum of one: replies after commits, sessions in time, configurations, refusals."""

from __future__ import annotations

import pytest
from tests.support.node_world import NodeWorld

from barnabas.common.errors import ErrorCode
from barnabas.controller.listener import ControllerListener
from barnabas.controller.requests.configs import ConfigChange
from barnabas.controller.requests.result import Cause, ControllerEvent
from barnabas.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest

Answer = tuple[ErrorCode, str | None]

OTHER_DIRECTORY = b"another directo."


@pytest.fixture
def world() -> NodeWorld:
    return NodeWorld().join()


def alter(
    world: NodeWorld,
    resource_type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    replace: bool = False,
) -> Answer:
    answers: list[list[Answer]] = []
    world.controller.alter_configs(
        [(resource_type, name, list(changes))], validate_only, answers.append, replace=replace
    )
    ((answer,),) = answers
    return answer


SET, DELETE, APPEND, SUBTRACT = ConfigChange.SET, ConfigChange.DELETE, ConfigChange.APPEND, ConfigChange.SUBTRACT


def test_a_reply_finds_its_change_published(world: NodeWorld) -> None:
    seen: list[bool] = []
    world.store.subscribe(lambda delta, image: seen.append("t" in image.topics_by_name))
    response = world.create("t")
    assert response.topics[0].error_code == ErrorCode.NONE
    assert seen == [True]
    assert world.controller.image == world.image


def test_decisions_see_what_was_decided_and_not_yet_committed(world: NodeWorld) -> None:
    answers: list[CreateTopicsResponse] = []

    def create_twice() -> None:
        for _ in range(2):
            world.controller.create_topics(_request("t"), answers.append)
        assert answers == []
        assert "t" in world.controller.image.topics_by_name
        assert "t" not in world.image.topics_by_name

    world.in_one_event(create_twice)
    assert [response.topics[0].error_code for response in answers] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


def _request(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    )


def test_every_change_has_a_cause(world: NodeWorld) -> None:
    journal: list[tuple[int, Cause]] = []
    world.controller.listen(ControllerListener(lambda: None, lambda offset, cause: journal.append((offset, cause))))
    offset = world.raft.log_end_offset
    world.create("t")
    assert journal == [(offset, Cause(ControllerEvent.CREATE_TOPICS, "controller", "t"))]


def test_producer_ids_come_in_blocks(world: NodeWorld) -> None:
    blocks: list[tuple[int, int, ErrorCode]] = []
    for epoch in (world.epoch, world.epoch, world.epoch + 1):
        world.controller.allocate_producer_ids(1, epoch, lambda *block: blocks.append(block))
    assert blocks == [(0, 1000, ErrorCode.NONE), (1000, 1000, ErrorCode.NONE), (0, 0, ErrorCode.STALE_BROKER_EPOCH)]


# Sessions


def test_a_silent_broker_is_fenced_and_comes_back(world: NodeWorld) -> None:
    world.create("t")
    world.host.time.run_for(8_999)
    assert not world.image.brokers[1].fenced
    world.host.time.run_for(1)
    assert world.image.brokers[1].fenced
    partition = world.image.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.elr) == (NO_LEADER, (1,))
    assert not world.beat().is_fenced
    partition = world.image.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.elr) == (1, ())


def test_heartbeats_keep_a_session(world: NodeWorld) -> None:
    for _ in range(10):
        world.host.time.run_for(5_000)
        world.beat()
    assert not world.image.brokers[1].fenced


def test_a_controller_that_did_not_run_fences_nobody_for_it(world: NodeWorld) -> None:
    world.register(2)
    world.beat(2)
    world.host.time.run_for(5_000)
    world.beat(2)
    # A pause of a minute: the timers come late, and so would the heartbeats.
    world.host.time._now_ms += 60_000
    world.host.time.run_for(0)
    assert not world.image.brokers[2].fenced
    world.host.time.run_for(9_000)
    assert world.image.brokers[2].fenced


def test_a_controller_that_did_not_run_gives_nobody_more_time_than_a_session(world: NodeWorld) -> None:
    world.register(2)
    world.beat(2)
    world.host.time._now_ms += 60_000
    # Requests that arrived meanwhile can be read before the timers run.
    world.beat(2)
    world.host.time.run_for(8_999)
    assert not world.image.brokers[2].fenced
    world.host.time.run_for(1)
    assert world.image.brokers[2].fenced


def test_a_controller_that_stopped_right_after_a_check_fences_nobody_for_it(world: NodeWorld) -> None:
    world.register(2)
    world.beat(2)
    world.host.time._now_ms += 60_000
    world.host.time.run_for(0)
    assert not world.image.brokers[2].fenced
    world.host.time.run_for(9_000)
    assert world.image.brokers[2].fenced


def test_a_controller_that_is_always_late_still_fences_the_silent(world: NodeWorld) -> None:
    world.register(2)
    world.beat(2)
    for _ in range(4):
        world.host.time._now_ms += 5_000
        world.host.time.run_for(0)
        world.beat()
    assert world.image.brokers[2].fenced
    assert not world.image.brokers[1].fenced


def test_brokers_that_come_back_after_all_were_fenced_have_sessions_that_run_out(world: NodeWorld) -> None:
    """The situation arises when a separate controller was cut off from all brokers."""
    world.register(2)
    world.beat(2)
    world.host.time.run_for(20_000)
    assert all(broker.fenced for broker in world.image.brokers.values())
    assert not world.beat().is_fenced
    assert not world.beat(2).is_fenced
    world.host.time.run_for(9_000)
    assert all(broker.fenced for broker in world.image.brokers.values())


def test_a_broker_that_could_not_be_fenced_is_fenced_later(world: NodeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.register(2)
    world.beat(2)

    def fail(first_offset: int, cause: Cause) -> None:
        raise RuntimeError("a mistake of the journal")

    monkeypatch.setattr(world.controller.proposals, "_listeners", [ControllerListener(lambda: None, fail)])
    with pytest.raises(RuntimeError, match="a mistake"):
        world.host.time.run_for(9_000)
    monkeypatch.undo()
    world.host.time.run_for(9_000)
    assert world.image.brokers[1].fenced
    assert world.image.brokers[2].fenced


def test_another_incarnation_waits_for_the_session_to_end(world: NodeWorld) -> None:
    assert world.register(2).error_code == ErrorCode.NONE
    world.beat(2)
    assert world.register(2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.host.time.run_for(9_000)
    assert world.register(2).error_code == ErrorCode.NONE


def test_an_incarnation_that_hung_up_does_not_hinder_the_next_with_its_directories(world: NodeWorld) -> None:
    epoch = world.register(2).broker_epoch
    world.beat(2)
    world.controller.broker_disconnected(2, epoch)
    other = OTHER_DIRECTORY
    assert world.register(2, directory=other).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert world.register(2).error_code == ErrorCode.NONE
    world.beat(2)
    world.controller.broker_disconnected(2, epoch)
    assert world.register(2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "that was the one before"


def test_after_a_crash_only_who_has_other_directories_waits_for_a_session_to_end() -> None:
    first = NodeWorld().join()
    first.register(2)
    first.beat(2)
    second = NodeWorld(disk=first.host.disk, seed=1).start()
    assert second.register(1).error_code == ErrorCode.NONE
    assert second.register(2, directory=OTHER_DIRECTORY).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert second.register(2).error_code == ErrorCode.NONE


def test_an_ordered_stop_and_start_keeps_leadership_clean() -> None:
    first = NodeWorld().join()
    first.create("t")
    epoch = first.epoch
    assert not first.beat(want_shut_down=True).should_shut_down
    assert first.beat(want_shut_down=True).should_shut_down
    first.raft.stop()
    second = NodeWorld(disk=first.host.disk, seed=1).join(previous_epoch=epoch)
    partition = second.image.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 0)


# Configurations


def test_a_topics_settings_are_set_and_taken_back(world: NodeWorld) -> None:
    world.create("t")
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "7")) == (
        ErrorCode.NONE,
        None,
    )
    assert dict(world.image.topic_config("t")) == {"retention.ms": "5", "segment.ms": "7"}
    offset = world.image.offset
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")) == (ErrorCode.NONE, None)
    assert world.image.offset == offset, "what is so already is not written again"
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", DELETE, None)) == (ErrorCode.NONE, None)
    assert dict(world.image.topic_config("t")) == {"segment.ms": "7"}
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", SET, "9"), replace=True) == (ErrorCode.NONE, None)
    assert dict(world.image.topic_config("t")) == {"retention.ms": "9"}
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", SET, "1"), validate_only=True) == (ErrorCode.NONE, None)
    assert dict(world.image.topic_config("t")) == {"retention.ms": "9"}


def test_lists_are_added_to_and_taken_from(world: NodeWorld) -> None:
    world.create("t")
    assert alter(world, TOPIC_RESOURCE, "t", ("cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
    assert dict(world.image.topic_config("t")) == {"cleanup.policy": "delete,compact"}
    assert alter(world, TOPIC_RESOURCE, "t", ("cleanup.policy", SUBTRACT, "delete")) == (ErrorCode.NONE, None)
    assert dict(world.image.topic_config("t")) == {"cleanup.policy": "compact"}
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", APPEND, "5")) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )


@pytest.mark.parametrize(
    ("resource_type", "name", "change", "expected"),
    [
        (
            TOPIC_RESOURCE,
            "missing",
            ("retention.ms", SET, "5"),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'missing' does not exist."),
        ),
        (
            TOPIC_RESOURCE,
            "",
            ("retention.ms", SET, "5"),
            (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ),
        (
            TOPIC_RESOURCE,
            "t",
            ("retention.ms", SET, "not a number"),
            (
                ErrorCode.INVALID_CONFIG,
                "Invalid value not a number for configuration retention.ms: Not a number of type LONG",
            ),
        ),
        (
            BROKER_RESOURCE,
            "9",
            ("log.cleaner.threads", SET, "2"),
            (ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 9 found."),
        ),
        (
            BROKER_RESOURCE,
            "one",
            ("log.cleaner.threads", SET, "2"),
            (ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        ),
        (
            BROKER_RESOURCE,
            "-3",
            ("log.cleaner.threads", SET, "2"),
            (ErrorCode.INVALID_REQUEST, "Invalid negative broker ID."),
        ),
        (
            BROKER_RESOURCE,
            "1",
            ("min.insync.replicas", SET, "2"),
            (ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ),
        (
            BROKER_RESOURCE,
            "",
            ("min.insync.replicas", DELETE, None),
            (ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
        ),
        (
            GROUP_RESOURCE,
            "",
            ("consumer.session.timeout.ms", SET, "50000"),
            (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        ),
        (
            CLIENT_METRICS_RESOURCE,
            "m",
            ("no.such.key", SET, "1"),
            (ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: no.such.key"),
        ),
        (
            BROKER_LOGGER_RESOURCE,
            "1",
            ("root", SET, "DEBUG"),
            (
                ErrorCode.INVALID_REQUEST,
                "Unable to handle resource type 8 with name '1' on the controller.",
            ),
        ),
        (
            TOPIC_RESOURCE,
            "t",
            ("retention.ms", 9, "5"),
            (ErrorCode.INVALID_REQUEST, "Unknown operation type 9 is not allowed."),
        ),
    ],
)
def test_refused_settings(
    world: NodeWorld, resource_type: int, name: str, change: tuple[str, int, str | None], expected: Answer
) -> None:
    world.create("t")
    before = world.image.configs
    assert alter(world, resource_type, name, change) == expected
    assert world.image.configs == before


def test_the_min_isr_of_the_cluster_leaves_the_elr_of_a_partition_without_a_leader(world: NodeWorld) -> None:
    world.create("t")
    world.host.time.run_for(9_000)
    before = world.image.partition("t", 0)
    assert before is not None
    assert (before.elr, before.last_known_elr) == ((1,), (1,))
    assert alter(world, BROKER_RESOURCE, "", ("min.insync.replicas", SET, "2")) == (ErrorCode.NONE, None)
    assert dict(world.image.config_of(BROKER_RESOURCE, "")) == {"min.insync.replicas": "2"}
    after = world.image.partition("t", 0)
    assert after is not None
    assert (after.leader, after.elr, after.last_known_elr) == (-1, before.elr, before.last_known_elr)


def test_a_group_and_metrics_may_be_configured_before_they_are_there(world: NodeWorld) -> None:
    assert alter(world, GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, "50000")) == (ErrorCode.NONE, None)
    assert alter(world, CLIENT_METRICS_RESOURCE, "m", ("interval.ms", SET, "1000")) == (ErrorCode.NONE, None)
    assert dict(world.image.config_of(GROUP_RESOURCE, "g")) == {"consumer.session.timeout.ms": "50000"}


# Not active


def test_an_inactive_controller_says_so() -> None:
    world = NodeWorld()
    assert world.register().error_code == ErrorCode.NOT_CONTROLLER
    assert world.create("t").topics[0].error_code == ErrorCode.NOT_CONTROLLER
    codes: list[int] = []
    world.controller.delete_topics(
        DeleteTopicsRequest(topic_names=["t"]), lambda answer: codes.append(answer.responses[0].error_code)
    )
    growth = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)
    world.controller.create_partitions(
        CreatePartitionsRequest(topics=[growth]), lambda answer: codes.append(answer.results[0].error_code)
    )
    assert codes == [ErrorCode.NOT_CONTROLLER] * 2
    assert alter(world, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")) == (ErrorCode.NOT_CONTROLLER, None)
    blocks: list[tuple[int, int, ErrorCode]] = []
    world.controller.allocate_producer_ids(1, 1, lambda *block: blocks.append(block))
    assert blocks == [(0, 0, ErrorCode.NOT_CONTROLLER)]
    answers: list[AlterPartitionResponse] = []
    world.controller.alter_partition(AlterPartitionRequest(broker_id=1), answers.append)
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_CONTROLLER]


def test_unregistering(world: NodeWorld) -> None:
    world.register(2)
    answers: list[Answer] = []
    world.controller.unregister_broker(2, lambda *answer: answers.append(answer))
    world.controller.unregister_broker(2, lambda *answer: answers.append(answer))
    assert answers == [
        (ErrorCode.NONE, None),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 2 is not currently registered"),
    ]
    assert 2 not in world.image.brokers
