"""Registration, fencing, controlled shutdown, elections and ISR changes, as records and as their effect."""

from __future__ import annotations

import pytest
from tests.support.controller_world import ControllerWorld, directory_of, registration

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import uuid_to_text
from barnabas.controller.kraft import broker_registrations
from barnabas.controller.requests import brokers, partitions, producer_ids
from barnabas.controller.requests.configs import ConfigChange, alter_resource
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION, METADATA_VERSION, TOPIC_RESOURCE
from barnabas.metadata.topics import NO_LEADER, RECOVERED, RECOVERING
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.records_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)


def three_brokers(**features: int) -> ControllerWorld:
    world = ControllerWorld(features=features)
    for broker_id in (1, 2, 3):
        world.add_broker(broker_id)
    return world


@pytest.fixture
def world() -> ControllerWorld:
    """Topic `t`: one partition on 1, 2, 3, led by 1."""
    world = three_brokers()
    world.create_assigned("t", [1, 2, 3])
    return world


def state(world: ControllerWorld) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    partition = world.partition("t")
    return partition.leader, partition.isr, partition.elr


# Registration


def test_a_new_broker_is_registered_fenced_under_the_offset_of_its_record(world: ControllerWorld) -> None:
    expected = world.image.offset + 1
    result = world.register(registration(4, rack="r"), session_alive=False)
    assert [(type(record), version) for record, version in result.records] == [(RegisterBrokerRecord, 3)]
    assert world.apply(result).broker_epoch == expected
    broker = world.image.brokers[4]
    assert (broker.epoch, broker.fenced, broker.rack) == (expected, True, "r")
    assert broker.directories == (directory_of(4),)
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("localhost", 9004)


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (
            registration(4, cluster_id="other"),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            "Expected cluster ID Z29sZGVuLWNsdXN0ZXItMQ, but got cluster ID other",
        ),
        (registration(4, directories=[]), ErrorCode.INVALID_REGISTRATION, "No directories specified in request"),
        (
            registration(4, directories=[bytes(15) + b"\x63"]),
            ErrorCode.INVALID_REGISTRATION,
            "Reserved directory ID in request",
        ),
        (
            registration(4, directories=[directory_of(4)] * 2),
            ErrorCode.INVALID_REGISTRATION,
            "Duplicate directory ID in request",
        ),
        (
            registration(4, directories=[directory_of(2)]),
            ErrorCode.INVALID_REGISTRATION,
            f"Broker 2 is already registered with directory {uuid_to_text(directory_of(2))}",
        ),
        (
            registration(4, features={METADATA_VERSION: (7, 26)}),
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 1 of "
            "eligible.leader.replicas.version. The broker wants a version between 0 and 0, inclusive.",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
def test_a_refused_registration(
    world: ControllerWorld, request_: BrokerRegistrationRequest, code: ErrorCode, text: str
) -> None:
    with pytest.raises(RequestFailed) as refusal:
        world.register(request_, session_alive=False)
    assert (refusal.value.code, refusal.value.message) == (code, text)


def test_another_incarnation_is_refused_while_the_first_lives(world: ControllerWorld) -> None:
    with pytest.raises(RequestFailed) as refusal:
        world.register(registration(1, incarnation=b"X" * 16), session_alive=True)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_the_same_incarnation_amends_what_it_said(world: ControllerWorld) -> None:
    before = world.image.brokers[1]
    world.apply(world.register(registration(1, rack="moved"), session_alive=True))
    after = world.image.brokers[1]
    assert (after.epoch, after.fenced, after.rack) == (before.epoch, False, "moved")


def test_an_incarnation_after_a_clean_stop_keeps_its_claim_to_lead() -> None:
    """The sequence is recorded from Kafka 4.1.0: clean shutdown and restart of the only replica."""
    world = ControllerWorld()
    world.add_broker(1)
    world.create_assigned("t", [1])
    assert not world.beat(1, want_shut_down=True).should_shut_down
    assert world.beat(1, want_shut_down=True).should_shut_down
    assert state(world) == (NO_LEADER, (), (1,))
    assert world.partition("t").last_known_elr == (1,)
    epoch = world.image.brokers[1].epoch
    request = registration(1, incarnation=b"N" * 16, previous_epoch=epoch)
    result = world.register(request, session_alive=False)
    assert len(result.records) == 1
    world.apply(result)
    world.beat(1)
    partition = world.partition("t")
    assert state(world) == (1, (1,), ())
    assert partition.last_known_elr == ()
    assert (partition.leader_epoch, partition.leader_recovery_state) == (2, RECOVERED)


def test_an_incarnation_after_a_crash_leads_again_only_uncleanly() -> None:
    """Guard G11, as recorded from Kafka 4.1.0: kill -9 and restart of the only replica."""
    world = ControllerWorld()
    world.add_broker(1)
    world.create_assigned("t", [1])
    result = world.register(registration(1, incarnation=b"N" * 16), session_alive=False)
    assert [type(record) for record, _ in result.records] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert result.response.broker_epoch == world.next_offset
    world.apply(result)
    assert state(world) == (NO_LEADER, (), ())
    assert world.partition("t").last_known_elr == (1,)
    world.beat(1)
    partition = world.partition("t")
    assert state(world) == (1, (1,), ())
    assert partition.leader_recovery_state == RECOVERING
    assert partition.last_known_elr == ()


# Heartbeats


def test_a_fenced_broker_is_unfenced_when_it_has_caught_up(world: ControllerWorld) -> None:
    world.add_broker(4, unfenced=False)
    broker = world.image.brokers[4]
    request = BrokerHeartbeatRequest(broker_id=4, broker_epoch=broker.epoch, current_metadata_offset=broker.epoch - 1)
    result = broker_registrations.heartbeat(world.view(), request, lowest_offset=0, shutdown_offset=-1)
    assert (result.records, result.response.is_caught_up, result.response.is_fenced) == ([], False, True)
    request.current_metadata_offset = broker.epoch
    result = broker_registrations.heartbeat(world.view(), request, lowest_offset=0, shutdown_offset=-1)
    assert (result.response.is_caught_up, result.response.is_fenced) == (True, False)
    assert [version for _, version in result.records] == [0]
    world.apply(result)
    assert not world.image.brokers[4].fenced


def test_a_heartbeat_with_a_stale_epoch_is_refused(world: ControllerWorld) -> None:
    for broker_id, epoch in ((1, 0), (9, 1)):
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
        with pytest.raises(RequestFailed) as refusal:
            broker_registrations.heartbeat(world.view(), request, lowest_offset=0, shutdown_offset=-1)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_stops_hands_over_its_leaderships_first(world: ControllerWorld) -> None:
    answer = world.beat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert world.image.brokers[1].in_controlled_shutdown
    assert state(world) == (2, (2, 3), ())
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=world.image.brokers[1].epoch,
        current_metadata_offset=world.image.offset,
        want_shut_down=True,
    )
    waiting = broker_registrations.heartbeat(world.view(), request, lowest_offset=5, shutdown_offset=6)
    assert (waiting.records, waiting.response.should_shut_down) == ([], False)
    allowed = broker_registrations.heartbeat(world.view(), request, lowest_offset=6, shutdown_offset=6)
    assert allowed.response.should_shut_down
    world.apply(allowed)
    assert world.image.brokers[1].fenced


def test_a_broker_without_leaderships_stops_at_once(world: ControllerWorld) -> None:
    answer = world.beat(3, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert state(world) == (1, (1, 2), ())


def test_a_broker_may_ask_to_be_fenced(world: ControllerWorld) -> None:
    answer = world.beat(1, want_fence=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, True)
    assert state(world) == (2, (2, 3), ())


def test_an_offline_directory_costs_its_replicas(world: ControllerWorld) -> None:
    world.add_broker(4)
    second = directory_of(99)
    world.apply(world.register(registration(4, directories=[directory_of(4), second]), session_alive=True))
    world.create_assigned("u", [4, 1])
    partition = world.partition("u")
    assert partition.directories[0] == bytes(15) + b"\x01"
    moved = PartitionChangeRecord(
        topic_id=world.image.topics_by_name["u"].topic_id, partition_id=0, directories=[second, directory_of(1)]
    )
    world.replay([(moved, 2)])
    request = BrokerHeartbeatRequest(
        broker_id=4,
        broker_epoch=world.image.brokers[4].epoch,
        current_metadata_offset=world.image.offset,
        offline_log_dirs=[second],
    )
    result = broker_registrations.heartbeat(world.view(), request, lowest_offset=0, shutdown_offset=-1)
    assert [(type(record), version) for record, version in result.records] == [
        (PartitionChangeRecord, 2),
        (BrokerRegistrationChangeRecord, 2),
    ]
    world.apply(result)
    assert (world.partition("u").leader, world.partition("u").isr) == (1, (1,))
    assert world.image.brokers[4].directories == (directory_of(4),)
    assert not world.image.brokers[4].has_online_directory(second)


# Leaders, ISR and ELR as brokers come and go


def test_with_min_isr_two_the_last_safe_replicas_are_kept_as_elr(world: ControllerWorld) -> None:
    """Guard G11 (KIP-966): below min ISR a replica that leaves the ISR can still have everything."""
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    world.fence(1)
    assert state(world) == (2, (2, 3), ())
    world.fence(2)
    assert state(world) == (3, (3,), (2,))
    world.fence(3)
    assert state(world) == (NO_LEADER, (), (2, 3))
    assert world.partition("t").last_known_elr == (3,)
    epoch = world.partition("t").leader_epoch
    world.unfence(1)
    assert state(world) == (NO_LEADER, (), (2, 3)), "broker 1 fell behind: it must not lead"
    world.unfence(2)
    assert state(world) == (2, (2,), (3,))
    assert world.partition("t").last_known_elr == ()
    assert world.partition("t").leader_epoch == epoch + 1
    assert world.partition("t").leader_recovery_state == RECOVERED


def change_min_isr(world: ControllerWorld, resource_type: int, name: str, value: str) -> None:
    change = ConfigChange("min.insync.replicas", ConfigChange.SET, value)
    world.replay(alter_resource(world.view(), resource_type, name, [change]))


@pytest.mark.parametrize(("resource_type", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_another_min_isr_leaves_the_elr_where_nothing_can_be_committed(
    world: ControllerWorld, resource_type: int, name: str
) -> None:
    """A partition without an in-sync replica would stay offline, although a complete replica returns."""
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    for broker_id in (1, 2, 3):
        world.fence(broker_id)
    change_min_isr(world, resource_type, name, "1")
    assert state(world) == (NO_LEADER, (), (2, 3))
    assert world.partition("t").last_known_elr == (3,)
    world.unfence(2)
    assert state(world)[0] == 2
    assert world.partition("t").leader_recovery_state == RECOVERED


@pytest.mark.parametrize(("resource_type", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_another_min_isr_clears_the_elr_where_a_leader_can_commit_without_it(
    world: ControllerWorld, resource_type: int, name: str
) -> None:
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    for broker_id in (1, 2):
        world.fence(broker_id)
    assert state(world) == (3, (3,), (2,))
    change_min_isr(world, resource_type, name, "1")
    assert state(world) == (3, (3,), ())


def test_without_elr_the_last_isr_member_stays_in_it() -> None:
    world = three_brokers(**{ELR_VERSION: 0})
    world.create_assigned("t", [1, 2])
    world.fence(1)
    world.fence(2)
    assert state(world) == (NO_LEADER, (2,), ())
    world.unfence(1)
    assert state(world) == (NO_LEADER, (2,), ())
    world.unfence(2)
    assert state(world) == (2, (2,), ())


def test_unclean_election_only_where_it_is_allowed() -> None:
    """Guard G13."""
    world = three_brokers(**{ELR_VERSION: 0})
    world.create_assigned("t", [1, 2])
    world.configure(TOPIC_RESOURCE, "t", "unclean.leader.election.enable", "true")
    world.fence(1)
    world.fence(2)
    world.unfence(1)
    assert state(world) == (1, (1,), ())
    assert world.partition("t").leader_recovery_state == RECOVERING


def test_the_current_leader_stays_when_another_comes_back(world: ControllerWorld) -> None:
    world.fence(1)
    before = world.partition("t")
    world.unfence(1)
    assert world.partition("t") == before


def test_an_unclean_shutdown_leaves_isr_and_elr(world: ControllerWorld) -> None:
    """Guard G12."""
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    world.fence(1)
    world.fence(2)
    assert state(world) == (3, (3,), (2,))
    request = registration(2, incarnation=b"N" * 16, previous_epoch=-1)
    world.apply(world.register(request, session_alive=False))
    assert state(world) == (3, (3,), ())


def test_unregistering_takes_a_broker_out_of_everything(world: ControllerWorld) -> None:
    world.apply(brokers.unregister(world.view(), 1, "User:test"))
    assert 1 not in world.image.brokers
    assert state(world) == (2, (2, 3), ())
    with pytest.raises(RequestFailed) as refusal:
        brokers.unregister(world.view(), 1, "User:test")
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# AlterPartition


def alter(
    world: ControllerWorld,
    isr: list[int],
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    partition_epoch: int | None = None,
    broker_epochs: dict[int, int] | None = None,
    recovery: int = RECOVERED,
    index: int = 0,
) -> AlterPartitionResponse.PartitionData:
    epochs = {broker_id: broker.epoch for broker_id, broker in world.image.brokers.items()} | (broker_epochs or {})
    if partition_epoch is None:
        partition_epoch = world.partition("t").partition_epoch
    row = AlterPartitionRequest.PartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=member, broker_epoch=epochs.get(member, -1)) for member in isr
        ],
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=epochs[leader],
        topics=[AlterPartitionRequest.TopicData(topic_id=world.image.topics_by_name["t"].topic_id, partitions=[row])],
    )
    return world.apply(partitions.alter_partition(world.view(), request, 3)).topics[0].partitions[0]


def test_a_leader_shrinks_and_expands_its_isr(world: ControllerWorld) -> None:
    answer = alter(world, [1, 2])
    assert (answer.error_code, answer.isr, answer.leader_id, answer.leader_epoch) == (0, [1, 2], 1, 0)
    assert answer.partition_epoch == world.partition("t").partition_epoch == 1
    answer = alter(world, [1, 2, 3])
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2, 3], 2)
    answer = alter(world, [1, 2, 3])
    assert (answer.error_code, answer.partition_epoch) == (0, 2), "nothing changes, nothing is written"


def test_an_isr_change_is_compare_and_set_on_both_epochs(world: ControllerWorld) -> None:
    """Guard G10."""
    alter(world, [1, 2])
    assert alter(world, [1], partition_epoch=0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert alter(world, [1], partition_epoch=7).error_code == ErrorCode.NOT_CONTROLLER
    assert alter(world, [1], leader_epoch=7).error_code == ErrorCode.NOT_CONTROLLER
    world.fence(1)
    world.unfence(1)
    assert alter(world, [1, 2]).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert alter(world, [2, 1], leader=1, leader_epoch=1).error_code == ErrorCode.INVALID_REQUEST


def test_an_isr_must_be_of_assigned_replicas_with_the_leader(world: ControllerWorld) -> None:
    world.add_broker(4)
    for isr in ([2, 3], [1, 4], [1, 1], []):
        assert alter(world, isr).error_code == ErrorCode.INVALID_REQUEST, isr
    assert alter(world, [1, 2], recovery=RECOVERING).error_code == ErrorCode.INVALID_REQUEST
    assert alter(world, [1], index=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fenced_or_reborn_broker_does_not_join_an_isr(world: ControllerWorld) -> None:
    """Guard G9."""
    alter(world, [1, 2])
    assert alter(world, [1, 2, 3], broker_epochs={3: 0}).error_code == ErrorCode.INELIGIBLE_REPLICA
    world.fence(3)
    assert alter(world, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter(world, [1, 2, 3], broker_epochs={3: -1}).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_alter_partition_of_a_stale_broker_or_an_unknown_topic(world: ControllerWorld) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=0)
    answer = partitions.alter_partition(world.view(), request, 3).response
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=world.image.brokers[1].epoch,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_id=b"?" * 16, partitions=[AlterPartitionRequest.PartitionData(partition_index=0)]
            )
        ],
    )
    answer = partitions.alter_partition(world.view(), request, 3).response
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_recovery_ends_when_the_leader_says_so() -> None:
    world = ControllerWorld()
    world.add_broker(1)
    world.create_assigned("t", [1])
    world.apply(world.register(registration(1, incarnation=b"N" * 16), session_alive=False))
    world.beat(1)
    assert world.partition("t").leader_recovery_state == RECOVERING
    answer = alter(world, [1], leader_epoch=world.partition("t").leader_epoch)
    assert (answer.error_code, answer.leader_recovery_state) == (0, RECOVERED)
    assert world.partition("t").leader_recovery_state == RECOVERED


# Producer ids


def test_producer_id_blocks_follow_each_other(world: ControllerWorld) -> None:
    epoch = world.image.brokers[2].epoch
    assert world.image.next_producer_id == -1
    assert world.apply(producer_ids.allocate(world.view(), 2, epoch)) == (0, 1000)
    assert world.apply(producer_ids.allocate(world.view(), 2, epoch)) == (1000, 1000)
    assert world.image.next_producer_id == 2000
    with pytest.raises(RequestFailed) as refusal:
        producer_ids.allocate(world.view(), 2, epoch + 1)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
