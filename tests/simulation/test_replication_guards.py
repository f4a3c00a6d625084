"""Guards of replication that need a cluster without random faults: each test names its own."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.replication.partition import Role
from barnabas.simulation.faulty_disk import Loss
from barnabas.simulation.worlds.replicated import Replicated, list_offsets_request, values_in

PRODUCER: dict[str, Any] = {"producer_id": 4711}
_READ_COMMITTED = 1


def rig() -> Replicated:
    """Returns a world with `orders` of one partition on 1, 2, 3; broker 1 leads; min ISR 2."""
    found = Replicated()
    found.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    return found


def isolate(world: Replicated, number: int) -> list[tuple[str, str]]:
    """Cuts a broker off from all nodes, but not from clients."""
    name = f"broker{number}"
    peers = [peer for peer in world.cluster.nodes if peer != name]
    pairs = [pair for peer in peers for pair in ((name, peer), (peer, name))]
    for source, target in pairs:
        world.cluster.network.cut(source, target)
    return pairs


def await_leader(world: Replicated, number: int) -> None:
    world.run_until(
        lambda: world.leader() == number and world.partition(number).role is Role.LEADER, f"broker {number} leads"
    )


def end_of_epoch(world: Replicated, at: int, epoch: int, current_epoch: int) -> tuple[int, int, int]:
    """Returns (error code, epoch, end offset)."""
    requested = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current_epoch, leader_epoch=epoch
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="orders", partitions=[requested])
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    response = world.client.call(f"broker{at}", request, OffsetForLeaderEpochResponse)
    row = response.topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.end_offset


def test_g4_every_question_with_another_epoch_is_fenced() -> None:
    """Guard G4 (KIP-320): Fetch, ListOffsets and OffsetForLeaderEpoch."""
    world = rig()
    world.produce(b"first")
    world.node(1).kill()
    await_leader(world, 2)
    epoch = world.partition(2).leader_epoch
    for requested, expected in (
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert world.fetch(0, at=2, epoch=requested).error_code == expected
        listed = world.client.call(
            "broker2", list_offsets_request("orders", 0, -2, epoch=requested), ListOffsetsResponse
        )
        assert listed.topics[0].partitions[0].error_code == expected
        assert end_of_epoch(world, 2, 0, requested)[0] == expected
    assert end_of_epoch(world, 2, 0, epoch) == (0, 0, 1)


def test_g4_a_consumer_can_find_out_that_records_it_read_are_gone() -> None:
    """Guard G4: after an unclean election the end of the epoch that the consumer read in is below its position."""
    world = Replicated()
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="1", unclean_leader_election_enable="true")
    world.produce(b"common")
    for number in (2, 3):
        world.cluster.prevent_start(f"broker{number}")
        world.node(number).kill()
    world.await_isr([1])
    world.run_for(50)
    for number in range(3):
        assert world.produce(b"lost %d" % number, to=1)[0] == 0
    position, epoch = 4, world.partition(1).leader_epoch
    world.cluster.prevent_start("broker1")
    world.node(1).kill()
    world.cluster.allow_start("broker2")
    world.run_until(lambda: world.leader() == 2 and world.partition(2).role is Role.LEADER, "broker 2 leads", 30_000)
    code, known, end = end_of_epoch(world, 2, epoch, world.partition(2).leader_epoch)
    assert code == ErrorCode.NONE
    assert known <= epoch
    assert end == 1 < position


def test_g5_a_write_by_a_stale_view_lands_once_and_in_order() -> None:
    """Guard G5: the producer writes to the old leader, gets no answer, and repeats the write at the new one."""
    world = rig()
    assert world.produce(b"0", to=1, base_sequence=0, **PRODUCER) == (0, 0)
    pairs = isolate(world, 1)
    assert world.produce(b"1", to=1, timeout_ms=200, base_sequence=1, **PRODUCER)[0] == ErrorCode.REQUEST_TIMED_OUT
    await_leader(world, 2)
    world.await_isr([2, 3])
    world.run_for(100)
    assert world.produce(b"1", to=2, base_sequence=1, **PRODUCER) == (0, 1)
    # The old leader still believes in itself; what it takes now counts nowhere.
    assert world.partition(1).role is Role.LEADER
    assert world.produce(b"2", to=1, timeout_ms=200, base_sequence=2, **PRODUCER)[0] != ErrorCode.NONE
    assert world.produce(b"2", to=2, base_sequence=2, **PRODUCER) == (0, 2)
    for source, target in pairs:
        world.cluster.network.heal(source, target)
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.produce(b"2", to=1, base_sequence=2, **PRODUCER)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.produce(b"2", to=2, base_sequence=2, **PRODUCER) == (0, 2)
    assert world.values(1) == world.values(2) == world.values(3) == [b"0", b"1", b"2"]


def test_g9_a_paused_leader_alters_nothing_when_it_comes_back() -> None:
    """Guards G9 and G10: its request to be alone in the ISR is of an earlier epoch."""
    world = rig()
    world.produce(b"first")
    world.node(1).machine.pause()
    await_leader(world, 2)
    world.await_isr([2, 3])
    world.run_for(50)
    assert world.produce(b"second", to=2) == (0, 1)
    epoch = world.image().leader_epoch
    world.node(1).machine.resume()
    world.await_isr([1, 2, 3])
    assert (world.leader(), world.image().leader_epoch) == (2, epoch)
    world.await_equal()
    assert world.values(1) == [b"first", b"second"]


def test_g9_an_isr_change_for_an_earlier_incarnation_of_a_broker_is_refused() -> None:
    """G9, KIP-903: the broker died while the request to add it was under way, and is back, without its records."""
    world = rig()
    for count in range(5):
        world.produce(b"%d" % count)
    network = world.cluster.network
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    world.await_isr([1, 2])
    for source, target in (("broker1", "controller1"), ("controller1", "broker1")):
        network.direction(source, target).extra_us = 300_000
    world.cluster.allow_start("broker3")
    leadership = world.partition(1).leadership
    assert leadership is not None
    world.run_until(lambda: leadership.proposed == (1, 2, 3), "its leader wants it back")
    meant = leadership.followers[3].broker_epoch
    between_two = (("broker1", "broker3"), ("broker3", "broker1"))
    for source, target in between_two:
        network.cut(source, target)
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    world.run_for(10)
    world.node(3).power_off(Loss.ALL)
    world.run_for(20)
    world.cluster.allow_start("broker3")
    world.run_for(250)
    reborn = world.controller.metadata.image.brokers[3]
    assert reborn.epoch > meant
    assert not reborn.fenced, "its new life is one that may join"
    assert world.partition(3).log.log_end_offset == 0
    assert leadership.proposed == (1, 2, 3), "the answer is on its way"
    world.run_until(lambda: leadership.proposed is None, "the request is answered")
    assert world.image().isr == (1, 2)
    for source, target in between_two:
        network.heal(source, target)
    world.await_isr([1, 2, 3])
    assert world.values(3) == [b"%d" % count for count in range(5)]


@pytest.mark.parametrize("requested", [0, 1, 2])
def test_g25_a_fetch_inside_a_batch_returns_the_whole_batch(requested: int) -> None:
    """Guard G25: and without read_committed nothing is named as aborted."""
    world = rig()
    assert world.produce(b"0", b"1", b"2") == (0, 0)
    world.await_equal()
    answer = world.fetch(requested)
    assert [offset for offset, _ in values_in(bytes(answer.records or b""))] == [0, 1, 2]
    assert not answer.aborted_transactions
    row = FetchRequest.FetchPartition(partition=0, fetch_offset=requested, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic_id=world.topic_id(), partitions=[row])
    request = FetchRequest(
        replica_id=-1, max_bytes=1 << 20, isolation_level=_READ_COMMITTED, session_epoch=-1, topics=[topic]
    )
    committed = world.client.call("broker1", request, FetchResponse).responses[0].partitions[0]
    assert committed.records == answer.records


def test_g28_a_reassignment_to_a_dead_broker_is_shown_and_can_be_cancelled() -> None:
    """Guard G28: what the controller says of it is what is the case."""
    world = rig()
    world.produce(b"first")
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    world.await_isr([1, 2])
    world.run_until(lambda: world.controller.metadata.image.brokers[3].fenced, "it is fenced")
    assert _reassign(world, [1, 3]) == 0
    world.run_for(500)
    image = world.image()
    assert (image.removing_replicas, set(image.isr)) == ((2,), {1, 2}), "it waits for broker 3, and loses nobody"
    assert world.produce(b"second", to=1) == (0, 1)
    assert _reassign(world, None) == 0
    world.run_for(100)
    assert (set(world.image().replicas), world.image().removing_replicas) == ({1, 2, 3}, ())
    world.cluster.allow_start("broker3")
    world.await_isr([1, 2, 3])
    world.await_equal()


def _reassign(world: Replicated, replicas: list[int] | None) -> int:
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="orders", partitions=[row])
    request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])
    response = world.client.call("broker1", request, AlterPartitionReassignmentsResponse)
    assert response.error_code == 0
    return response.responses[0].partitions[0].error_code
