"""The controller's decisions on a broker's report that one of its log directories accepts no writes (decision 0012)."""

from __future__ import annotations

from typing import NoReturn

import pytest
from tests.support.controller_world import ControllerWorld, directory_of, registration

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft import broker_registrations
from barnabas.controller.requests import partitions
from barnabas.journal.causes import cause_of_change
from barnabas.metadata.image import MetadataDelta
from barnabas.metadata.unwritable import UNWRITABLE_TAG, read_unwritable, unwritable_tags
from barnabas.protocol import codec
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


def world(*, min_isr: str = "2", replicas: tuple[list[int], ...] = ([1, 2, 3], [2, 3, 1])) -> ControllerWorld:
    made = ControllerWorld({"min.insync.replicas": min_isr})
    for broker_id in (1, 2, 3):
        made.add_broker(broker_id)
    made.create_assigned("orders", *replicas)
    return made


def full(made: ControllerWorld, broker_id: int) -> None:
    made.beat(broker_id, unwritable=[directory_of(broker_id)])


def isr_request(made: ControllerWorld, leader: int, isr: list[int]) -> int:
    """Returns the error code of the leader's AlterPartition for partition 0."""
    partition = made.partition("orders")
    row = AlterPartitionRequest.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=b, broker_epoch=-1) for b in isr],
    )
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=made.image.brokers[leader].epoch,
        topics=[
            AlterPartitionRequest.TopicData(topic_id=made.image.topics_by_name["orders"].topic_id, partitions=[row])
        ],
    )
    response = made.apply(partitions.alter_partition(made.view(), request, 3))
    return int(response.topics[0].partitions[0].error_code)


def test_its_replicas_leave_isr_and_leadership() -> None:
    made = world()
    full(made, 1)
    assert made.image.brokers[1].unwritable == (directory_of(1),)
    assert not made.image.brokers[1].fenced
    assert (made.partition("orders", 0).leader, made.partition("orders", 0).isr) == (2, (2, 3))
    assert (made.partition("orders", 1).leader, made.partition("orders", 1).isr) == (2, (2, 3))


def test_a_fenced_broker_reports_it_before_it_is_unfenced() -> None:
    """The heartbeat that unfenced a broker ignored the report: it joined ISRs until the next one (seed 4 of
    `test_disks_in_trouble`, a slow disk)."""
    made = world()
    made.fence(1)
    response = made.beat(1, unwritable=[directory_of(1)])
    assert response.is_fenced
    assert read_unwritable(response.unknown_tags) == ()
    assert made.image.brokers[1].unwritable == (directory_of(1),)
    assert not made.beat(1, unwritable=[directory_of(1)]).is_fenced
    assert isr_request(made, 2, [1, 2, 3]) == ErrorCode.INELIGIBLE_REPLICA
    assert not made.beat(1).is_fenced
    assert not made.image.brokers[1].unwritable


def test_the_answer_says_that_it_was_understood_and_nothing_is_written_twice() -> None:
    made = world()
    response = made.beat(1, unwritable=[directory_of(1)])
    assert read_unwritable(response.unknown_tags) == ()
    offset = made.image.offset
    made.beat(1, unwritable=[directory_of(1)])
    assert made.image.offset == offset
    assert made.beat(2).unknown_tags == (), "others are answered as Kafka answers"


def test_the_field_is_one_that_kafka_skips() -> None:
    request = BrokerHeartbeatRequest(broker_id=1, unknown_tags=unwritable_tags([directory_of(1)]))
    data = bytes(codec.encode(request, 1))
    read, _ = codec.decode(BrokerHeartbeatRequest, 1, data, 0)
    assert read.unknown_tags == ((UNWRITABLE_TAG, directory_of(1)),)
    assert read_unwritable([(UNWRITABLE_TAG, b"12345")]) is None, "no list of ids"


def test_a_full_replica_does_not_join_and_comes_back_when_it_takes_writes() -> None:
    made = world()
    full(made, 3)
    assert isr_request(made, 1, [1, 2, 3]) == ErrorCode.INELIGIBLE_REPLICA
    made.beat(3)
    assert made.image.brokers[3].unwritable == ()
    assert isr_request(made, 1, [1, 2, 3]) == ErrorCode.NONE
    assert made.partition("orders").isr == (1, 2, 3)


def test_where_nobody_else_can_write_everything_stays() -> None:
    made = world(replicas=([1, 2],))
    made.create_assigned("alone", [1])
    full(made, 1)
    assert (made.partition("alone").leader, made.partition("alone").isr) == (1, (1,))
    assert (made.partition("orders").leader, made.partition("orders").isr) == (2, (2,))
    full(made, 2)
    assert (made.partition("orders").leader, made.partition("orders").isr) == (2, (2,))


def test_the_last_one_with_room_keeps_the_elr_of_those_that_left() -> None:
    """KIP-966: a replica that leaves a too small ISR stays eligible."""
    made = ControllerWorld({"min.insync.replicas": "2"}, features={"eligible.leader.replicas.version": 1})
    for broker_id in (1, 2, 3):
        made.add_broker(broker_id)
    made.create_assigned("orders", [1, 2, 3])
    full(made, 1)
    full(made, 2)
    partition = made.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (3, (3,), (2,))
    made.fence(3)
    partition = made.partition("orders")
    assert (partition.leader, partition.isr) == (2, (2,)), "eligible, full or not"


def test_who_has_room_again_takes_over_from_full_replicas() -> None:
    made = world(replicas=([1, 2],))
    full(made, 1)
    full(made, 2)
    assert (made.partition("orders").leader, made.partition("orders").isr) == (2, (2,))
    made.beat(1)
    assert isr_request(made, 2, [2, 1]) == ErrorCode.NEW_LEADER_ELECTED
    assert (made.partition("orders").leader, made.partition("orders").isr) == (1, (1,))


def test_only_the_directory_that_is_full_counts() -> None:
    made = ControllerWorld()
    made.apply(made.register(registration(1, directories=[b"A" * 16, b"B" * 16]), session_alive=False))
    made.beat(1)
    made.beat(1, unwritable=[b"A" * 16])
    broker = made.image.brokers[1]
    assert not broker.takes_writes(b"A" * 16)
    assert broker.takes_writes(b"B" * 16)
    assert broker.takes_writes(bytes(16)), "where it lies is not decided yet"


def test_new_partitions_begin_without_it() -> None:
    made = world()
    full(made, 1)
    made.create_assigned("new", [1, 2, 3])
    assert (made.partition("new").leader, made.partition("new").isr) == (2, (2, 3))
    for number in range(5):
        made.create(f"placed{number}", 3, 1)
        assert all(partition.leader != 1 for partition in made.image.topics_by_name[f"placed{number}"].partitions)
    full(made, 2)
    full(made, 3)
    made.create("anyhow", 3, 3)
    assert made.partition("anyhow").isr == made.partition("anyhow").replicas


def test_a_snapshot_keeps_it_and_a_new_incarnation_begins_anew() -> None:
    made = world()
    full(made, 1)
    record = made.image.brokers[1].to_record()
    delta = MetadataDelta(made.image)
    delta.replay(record)
    assert delta.changed_brokers[1] == made.image.brokers[1]
    made.apply(made.register(registration(1, incarnation=b"J" * 16), session_alive=False))
    assert made.image.brokers[1].unwritable == ()


def test_the_journal_says_why() -> None:
    made = world()
    broker = made.image.brokers[1]
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=broker.epoch, unknown_tags=unwritable_tags([directory_of(1)])
    )
    result = broker_registrations.heartbeat(made.view(), request, lowest_offset=0, shutdown_offset=-1)
    told = cause_of_change(result.cause, MetadataDelta(made.image))
    assert told.code == "broker-full"
    assert told.text.startswith("broker 1 cannot write to log directory ")
    delta = MetadataDelta(made.image)
    for change, _ in result.records:
        delta.replay(change)
    assert cause_of_change(None, delta).code == "broker-full", "read off the change itself"


def test_a_heartbeat_without_news_walks_no_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    full(made, 1)

    def mark(*arguments: object) -> NoReturn:
        raise AssertionError("the report is known")

    monkeypatch.setattr(broker_registrations, "mark_unwritable", mark)
    full(made, 1)
    made.beat(2)
    with pytest.raises(AssertionError, match="the report is known"):
        full(made, 2)
