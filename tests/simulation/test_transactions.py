"""Transactions on three brokers: what readers see, what a failover keeps, and which producers are fenced (guards
G20-G24).
"""

from __future__ import annotations

import pytest
from tests.support.txn_situations import completed, producer, rig, settle

from barnabas.common.errors import ErrorCode
from barnabas.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.coordinators.transactions.markers import VERSION_TAG
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.worlds.replicated import RawClient, Replicated, list_offsets_request
from barnabas.simulation.worlds.txn_client import Coordination, fetch, marker_request, read, write_marker

VERSIONS = [1, 2]


def await_leader_but(world: Replicated, dead: int) -> None:
    world.run_until(lambda: world.leader() not in (-1, dead), "another leader")
    world.run_until(world.settled, "which knows it")


# -- what readers see


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(version: int) -> None:
    world = rig()
    writer = producer(world, version)
    seen: list[bytes] = []
    everything: list[bytes] = []
    for number, commit in enumerate([True, False, True, True, False, False, True]):
        values = [b"%d-%d" % (number, each) for each in range(3)]
        writer.send(*values[:2])
        writer.send(*values[2:])
        everything += values
        assert read(world) == seen  # no record of an open transaction
        assert read(world, committed=False) == everything
        if commit:
            writer.commit()
            seen += values
        else:
            writer.abort()
        settle(world, completed(commit))
        world.run_for(50)
        assert read(world) == seen
    row = fetch(world, 0)
    assert [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()] == [
        (writer.producer_id, first) for first in (4, 16, 20)
    ]
    assert fetch(world, 0, committed=False).aborted_transactions is None
    assert row.last_stable_offset == row.high_watermark


def test_readers_stop_at_the_oldest_open_transaction() -> None:
    world = rig()
    one, two = producer(world, 2, "one"), producer(world, 2, "two")
    assert world.produce(b"plain 0") == (0, 0)
    one.send(b"one")
    two.send(b"two")
    assert world.produce(b"plain 1") == (0, 3)
    two.commit()
    world.run_for(200)
    assert read(world) == [b"plain 0"]
    row = fetch(world, 0)
    assert (row.last_stable_offset, row.high_watermark) == (1, 5)
    one.abort()
    world.run_for(200)
    assert read(world) == [b"plain 0", b"two", b"plain 1"]


def test_every_replica_describes_the_producers_that_it_knows() -> None:
    """Kafka's search for hanging transactions asks a broker for all its replicas, led or followed."""
    world = rig()
    writer = producer(world, 2)
    writer.send(b"open")
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name="orders", partition_indexes=[0])]
    )

    def told(node: int) -> tuple[int, list[tuple[int, int]]]:
        answer = writer.call(request, DescribeProducersResponse, node=f"broker{node}")
        row = answer.topics[0].partitions[0]
        return row.error_code, [(one.producer_id, one.current_txn_start_offset) for one in row.active_producers]

    for node in (1, 2, 3):
        world.run_until(lambda node=node: told(node) == (0, [(writer.producer_id, 0)]), f"broker {node} tells")  # type: ignore[misc]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_replicas_know_the_same_of_transactions(version: int) -> None:
    world = rig()
    writer = producer(world, version)
    for commit in (True, False):
        writer.send(b"a", b"b")
        writer.send(b"c", partition=1)
        writer.end(commit)
    writer.send(b"open")
    world.await_equal()
    for index in (0, 1):
        logs = [world.partition(n, "orders", index).log for n in (1, 2, 3)]
        entries = [log.producers.producers[writer.producer_id] for log in logs]
        known = {(e.epoch, e.coordinator_epoch, e.txn_first_offset, e.last_sequence) for e in entries}
        assert len(known) == 1
        assert len({tuple(log.segments.active.txn_index.entries()) for log in logs}) == 1
        assert len(logs[0].segments.active.txn_index.entries()) == 1


# -- failover


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_dies_in_a_transaction_leaves_it_to_the_next(version: int) -> None:
    world = rig()
    writer = producer(world, version)
    writer.send(b"a")
    dead = world.leader()
    world.node(dead).kill()
    await_leader_but(world, dead)
    writer.send(b"b")
    writer.commit()
    settle(world)
    world.run_for(200)
    assert read(world) == [b"a", b"b"]
    world.node(dead).start()
    world.await_isr([1, 2, 3])
    world.await_equal()


def test_a_retried_batch_is_the_same_one_before_and_after_the_failover() -> None:
    """G20, within a transaction."""
    world = rig()
    writer = producer(world, 2)
    data = writer.batch(b"a")
    for step in range(3):
        request = writer.produce_request(data, 0)
        answer = writer.call(request, ProduceResponse, node=f"broker{world.leader()}")
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)
        if step == 1:
            dead = world.leader()
            world.node(dead).kill()
            await_leader_but(world, dead)
    assert read(world, committed=False) == [b"a"]


def test_the_same_sequence_after_an_abort_is_another_record() -> None:
    """G21, where the epoch changes with each transaction."""
    world = rig()
    writer = producer(world, 2)
    writer.send(b"a")
    writer.abort()
    assert writer.sequences == {}
    writer.send(b"a")
    writer.commit()
    settle(world)
    assert read(world) == [b"a"]
    assert read(world, committed=False) == [b"a", b"a"]


def test_readers_of_a_broker_that_comes_back_wait_for_a_marker_that_was_not_replicated() -> None:
    """An administrator aborts; the leader is stopped cleanly before its followers have the marker, and returns as a
    follower. The marker is truncated, the producer commits: no reader has taken the transaction for aborted.
    """
    world = rig()
    writer = producer(world, 2)
    writer.send(b"a")
    assert world.leader() == 1
    world.run_until(lambda: world.partition(1).high_watermark == 1, "the record is replicated")
    pairs = [pair for other in (2, 3) for pair in ((f"broker{other}", "broker1"), ("broker1", f"broker{other}"))]
    for pair in pairs:
        world.cluster.network.cut(*pair)
    abort = marker_request(writer.producer_id, writer.epoch, commit=False, coordinator_epoch=0)
    world.client.process.enter(lambda: world.client.send("broker1", abort, lambda _: None))
    world.run_until(lambda: world.partition(1).log.log_end_offset == 2, "the leader has the marker")
    assert (world.partition(1).high_watermark, world.partition(1).last_stable_offset) == (1, 0)
    world.node(1).stop()
    world.run_until(lambda: not world.node(1).is_running, "it has stopped")
    await_leader_but(world, 1)
    world.node(1).start()
    node = world.node(1)
    world.run_until(
        lambda: node.broker is not None and node.broker.replicas.find("orders", 0) is not None, "it is back"
    )
    back = world.partition(1)
    assert (back.log.log_end_offset, back.high_watermark, back.last_stable_offset) == (2, 1, 0)
    for pair in pairs:
        world.cluster.network.heal(*pair)
    world.await_equal()
    assert world.partition(1).last_stable_offset == 0, "it is open again"
    writer.commit()
    settle(world)
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert [read(world, at=number) for number in (1, 2, 3)] == [[b"a"]] * 3


# -- fenced producers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_zombie_writes_no_more(version: int) -> None:
    world = rig()
    zombie = producer(world, version)
    zombie.send(b"zombie")
    successor = producer(world, version)
    assert successor.producer_id == zombie.producer_id
    assert successor.epoch > zombie.epoch
    assert zombie.produce(b"again") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end() is ErrorCode.PRODUCER_FENCED
    assert zombie.send_offset(5) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    successor.send(b"successor")
    successor.commit()
    settle(world)
    assert read(world) == [b"successor"]


def test_a_partition_that_was_not_added_takes_no_record() -> None:
    world = rig()
    writer = producer(world, 1)
    assert writer.produce(b"not added") is ErrorCode.TRANSACTION_ABORTABLE
    assert writer.add(1) is ErrorCode.NONE
    assert writer.produce(b"not added") is ErrorCode.TRANSACTION_ABORTABLE
    assert writer.produce(b"added", partition=1) is ErrorCode.NONE
    assert world.partition(1).log.log_end_offset == 0


def test_a_record_that_comes_after_the_end_opens_nothing() -> None:
    """The hanging transaction of KIP-890: LSO never stuck (G24)."""
    world = rig()
    writer = producer(world, 1)
    writer.send(b"a")
    late = writer.batch(b"late")
    writer.commit()
    settle(world)
    world.run_for(100)
    writer.sequences["orders", 0] = 1
    request = writer.produce_request(late, 0)
    answer = writer.call(request, ProduceResponse, node=f"broker{world.leader()}", version_max=11)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.TRANSACTION_ABORTABLE
    row = fetch(world, 0)
    assert row.last_stable_offset == row.high_watermark == 2


def test_a_marker_that_comes_late_does_not_end_the_next_transaction() -> None:
    """G24: with version 2 of the protocol its epoch is that of the next transaction's records."""
    world = rig()
    writer = producer(world, 2)
    writer.send(b"a")
    writer.commit()
    settle(world)
    writer.send(b"b")
    tag = ((VERSION_TAG, b"\x02"),)
    coordinator_epoch = world.image(TRANSACTION_STATE_TOPIC).leader_epoch
    late = write_marker(
        world, writer.producer_id, writer.epoch, commit=False, coordinator_epoch=coordinator_epoch, tags=tag
    )
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    writer.send(b"c")
    writer.commit()
    settle(world)
    world.run_for(100)
    assert read(world) == [b"a", b"b", b"c"]


def test_markers_of_old_epochs_are_refused() -> None:
    world = rig()
    writer = producer(world, 1)
    producer(world, 1)  # the next epoch
    writer.begin()
    writer.send(b"a")
    world.broker(world.leader())
    entry = world.partition(1).log.producers.producers[writer.producer_id]
    assert write_marker(world, writer.producer_id, writer.epoch - 1, commit=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert entry.txn_first_offset == 0
    for coordinator_epoch, code in ((7, ErrorCode.NONE), (6, ErrorCode.TRANSACTION_COORDINATOR_FENCED)):
        told = write_marker(world, writer.producer_id, writer.epoch, commit=False, coordinator_epoch=coordinator_epoch)
        assert told is code


def test_an_abandoned_transaction_holds_nobody_up_for_ever() -> None:
    world = rig(transaction_abort_timed_out_transaction_cleanup_interval_ms="500")
    writer = producer(world, 2, timeout_ms=2_000)
    writer.send(b"abandoned")
    world.produce(b"plain")
    assert read(world) == []
    world.run_for(4_000)
    assert read(world) == [b"plain"]
    assert writer.produce(b"too late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.end() is ErrorCode.PRODUCER_FENCED


def test_an_administrator_ends_what_nobody_ends() -> None:
    world = rig()
    writer = producer(world, 1)
    writer.send(b"hanging")
    assert write_marker(world, writer.producer_id, writer.epoch, commit=False, coordinator_epoch=-1) is ErrorCode.NONE
    world.run_for(100)
    assert read(world) == []
    row = fetch(world, 0)
    assert row.last_stable_offset == row.high_watermark == 2


# -- offsets


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_the_transaction_is_committed(version: int, commit: bool) -> None:
    world = rig()
    writer = producer(world, version)
    group = Coordination(world)
    writer.again(lambda: writer.send_offset(41))
    assert group.offsets(stable=False)[0] == (0, -1)
    assert group.offsets(stable=True)[0] == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert group.offsets(stable=True)[1] == (0, -1)
    writer.again(lambda: writer.end(commit))
    settle(world, completed(commit))
    world.run_for(100)
    assert group.offsets(stable=True)[0] == (0, 41 if commit else -1)


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_an_open_transaction_outlive_their_coordinator(commit: bool) -> None:
    world = rig()
    writer = producer(world, 2)
    writer.again(lambda: writer.send_offset(7))
    dead = world.leader(GROUP_METADATA_TOPIC)
    world.node(dead).kill()
    world.run_until(lambda: world.leader(GROUP_METADATA_TOPIC) not in (-1, dead), "another coordinator")
    group = Coordination(world)
    assert group.offsets(stable=True)[0] == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    writer.again(lambda: writer.end(commit))
    settle(world, completed(commit))
    world.run_for(200)
    assert group.offsets(stable=True)[0] == (0, 7 if commit else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_marker_that_comes_while_a_record_waits_to_be_verified(version: int) -> None:
    """A marker of version 1 can be this transaction's end, and the record would open one that never ends. One of
    version 2 is the last transaction's.
    """
    world = rig()
    writer = producer(world, version)
    writer.send(b"a", partition=0)
    writer.send(b"a", partition=1)
    writer.commit()
    settle(world)
    coordinator = world.leader(TRANSACTION_STATE_TOPIC)
    partition = next(index for index in (0, 1) if world.leader("orders", index) != coordinator)
    if version == 1:
        writer.again(lambda: writer.add(partition))
    else:
        writer.sequences.clear()
    answers: list[Message | None] = []
    request = writer.produce_request(writer.batch(b"b", partition=partition), partition)
    leader = f"broker{world.leader('orders', partition)}"
    other = RawClient(world.cluster, "other")
    other.call(leader, list_offsets_request("orders", partition), ListOffsetsResponse)  # connects it
    last = 13 if version == 2 else 11
    world.cluster.network.cut(f"broker{coordinator}", leader)
    world.client.process.enter(lambda: world.client.send(leader, request, answers.append, version_max=last))
    world.run_for(20)
    marker = marker_request(writer.producer_id, writer.epoch, partition=partition, coordinator_epoch=9)
    other.process.enter(lambda: other.send(leader, marker, lambda _: None))
    world.run_for(20)
    world.cluster.network.heal(f"broker{coordinator}", leader)
    world.run_until(lambda: bool(answers), "the record is answered")
    assert isinstance(answers[0], ProduceResponse)
    code = answers[0].responses[0].partition_responses[0].error_code
    assert code == (ErrorCode.NONE if version == 2 else ErrorCode.INVALID_TXN_STATE)


def test_the_next_transaction_follows_at_once() -> None:
    world = rig()
    writer = producer(world, 2)
    for number in range(20):
        writer.send(b"%d" % number)
        writer.again(lambda number=number: writer.send_offset(number))  # type: ignore[misc]
        assert writer.end() is ErrorCode.NONE
    settle(world)
    assert read(world) == [b"%d" % number for number in range(20)]
    assert Coordination(world).offsets(stable=True)[0] == (0, 19)
