"""Replication among three brokers, one situation at a time. The rest: `test_replication_explorer.py`."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.message import Message
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.replication.partition import Role
from barnabas.simulation.faulty_disk import BROKEN, Loss
from barnabas.simulation.worlds.replicated import (
    CONTROLLER,
    Replicated,
    batch_of,
    fetch_request,
    produce_request,
    values_in,
)

PRODUCER: dict[str, Any] = {"producer_id": 4711}


def rig(min_isr: int = 2, **configs: str) -> Replicated:
    """Returns a world with `orders` of one partition on 1, 2, 3; broker 1 leads."""
    found = Replicated()
    found.create_topic("orders", [[1, 2, 3]], min_insync_replicas=str(min_isr), **configs)
    return found


def cut(world: Replicated, one: int, *others: int, controller: bool = False) -> list[tuple[str, str]]:
    """Cuts all links between them, and returns the pairs for `heal`."""
    peers = [f"broker{other}" for other in others] + ([CONTROLLER] if controller else [])
    pairs = [pair for peer in peers for pair in ((f"broker{one}", peer), (peer, f"broker{one}"))]
    for source, target in pairs:
        world.cluster.network.cut(source, target)
    return pairs


def heal(world: Replicated, pairs: list[tuple[str, str]]) -> None:
    for source, target in pairs:
        world.cluster.network.heal(source, target)


def delete_before(world: Replicated, offset: int, *, timeout_ms: int = 1000) -> tuple[int, int]:
    """Returns (error code, low watermark)."""
    requested = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="orders", partitions=[requested])
    request = DeleteRecordsRequest(timeout_ms=timeout_ms, topics=[topic])
    row = world.client.call("broker1", request, DeleteRecordsResponse).topics[0].partitions[0]
    return row.error_code, row.low_watermark


# -- acks and the HW


def test_followers_have_what_the_leader_acknowledged() -> None:
    world = rig()
    for number in range(20):
        assert world.produce(b"%d" % number) == (0, number)
        assert all(world.partition(n).log.log_end_offset == number + 1 for n in (1, 2, 3))
    world.await_equal()
    assert world.values(1) == world.values(2) == world.values(3) == [b"%d" % number for number in range(20)]


def test_what_is_not_replicated_is_not_visible() -> None:
    """G22, with acks=1 too."""
    world = rig()
    world.produce(b"committed")
    pairs = cut(world, 1, 2, 3)
    assert world.produce(b"alone", to=1, acks=1) == (0, 1)
    answer = world.fetch(0, at=1)
    assert [value for _, value in values_in(bytes(answer.records or b""))] == [b"committed"]
    assert answer.high_watermark == 1
    assert world.list_offset(at=1) == (0, 1)
    assert world.fetch(1, at=1).error_code == 0, "not out of range: it is there, and will be seen"
    heal(world, pairs)
    world.run_until(lambda: world.partition(1).high_watermark == 2, "it is committed")


def test_too_few_in_sync_refuse_acks_all_before_the_write() -> None:
    world = rig()
    world.produce(b"first")
    for number in (2, 3):
        world.cluster.prevent_start(f"broker{number}")
        world.node(number).kill()
    world.await_isr([1])
    world.run_for(10)
    assert world.produce(b"second", to=1) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert world.partition(1).log.log_end_offset == 1
    assert world.produce(b"third", to=1, acks=1) == (0, 1)
    world.run_for(2000)
    assert world.partition(1).high_watermark == 1, "no HW without enough replicas (KIP-966)"
    for number in (2, 3):
        world.cluster.allow_start(f"broker{number}")
    world.await_isr([1, 2, 3])
    assert world.produce(b"fourth") == (0, 2)


def test_a_write_that_loses_its_replicas_times_out_and_leaves_nothing_behind() -> None:
    world = rig()
    cut(world, 1, 2, 3)
    for _ in range(5):
        assert world.produce(b"late", to=1, timeout_ms=50)[0] == ErrorCode.REQUEST_TIMED_OUT
    assert not len(world.partition(1)._commit_waiters)


def test_the_leader_says_so_when_the_isr_is_too_small_after_the_write() -> None:
    world = rig()
    world.produce(b"first")
    partition = world.partition(1)
    assert partition.leadership is not None
    partition.leadership.isr = (1,)
    told: list[ErrorCode] = []
    partition.await_commit(1, told.append)
    assert told == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_silent_follower_leaves_the_isr_and_comes_back() -> None:
    world = rig()
    pairs = cut(world, 3, 1, 2)
    assert world.produce(b"waits", timeout_ms=300)[0] == ErrorCode.REQUEST_TIMED_OUT
    world.await_isr([1, 2], within_ms=2500)
    assert world.produce(b"continues") == (0, 1)
    heal(world, pairs)
    world.await_isr([1, 2, 3])
    world.await_equal()


# -- leaders that go


def test_the_next_leader_has_all_and_goes_on() -> None:
    world = rig()
    for number in range(5):
        world.produce(b"%d" % number)
    world.cluster.prevent_start("broker1")
    world.node(1).kill()
    world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")
    assert world.produce(b"5", to=2) == (0, 5)
    world.cluster.allow_start("broker1")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(1) == world.values(2) == world.values(3)


def test_followers_find_a_new_leader_at_once_although_they_wait_elsewhere() -> None:
    """One fetch is under way per leader: a new partition must not wait for the end of that fetch's wait."""
    for delay_us in (0, 3_000, 9_000):
        world = Replicated()
        world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
        world.create_topic("other", [[2, 3, 1]])
        world.run_for(250)
        for name in ("broker2", "broker3"):
            world.cluster.network.direction(CONTROLLER, name).extra_us = delay_us if name == "broker3" else 0
        world.node(1).kill()
        world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")  # noqa: B023
        began_us = world.world.now_us
        assert world.produce(b"first", to=2) == (0, 0)
        assert world.world.now_us - began_us < 40_000 + delay_us


def test_a_new_leader_knows_its_epoch_before_its_first_record() -> None:
    """G3"""
    world = rig()
    world.produce(b"first")
    world.node(1).kill()
    world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")
    partition = world.partition(2)
    assert partition.log.epochs.latest_epoch == partition.leader_epoch
    assert partition.log.end_offset_for_epoch(partition.leader_epoch) == (partition.leader_epoch, 1)
    assert partition.log.end_offset_for_epoch(0) == (0, 1)


def test_an_idempotent_retry_after_the_failover_gets_the_original_offset() -> None:
    """G20: followers keep the producers' state too."""
    world = rig()
    for sequence in range(5):
        assert world.produce(b"%d" % sequence, base_sequence=sequence, **PRODUCER) == (0, sequence)
    world.node(1).kill()
    world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")
    world.await_isr([2, 3])
    world.run_for(50)
    assert world.produce(b"4", to=2, base_sequence=4, **PRODUCER) == (0, 4)
    assert world.produce(b"2", to=2, base_sequence=2, **PRODUCER) == (0, 2)
    assert world.partition(2).log.log_end_offset == 5
    assert world.produce(b"9", to=2, base_sequence=9, **PRODUCER)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.produce(b"5", to=2, base_sequence=5, **PRODUCER) == (0, 5)


def test_a_new_leader_returns_no_log_end_before_it_knows_the_hw() -> None:
    """G6: a new leader must not report an end that is lower than that of an earlier leader."""
    world = rig()
    world.produce(b"first")
    world.run_for(600)
    world.produce(b"second")
    assert world.list_offset(at=1) == (0, 2)
    assert world.partition(2).high_watermark < 2, "a follower learns the HW with its next answer"
    cut(world, 2, 3)
    world.node(1).kill()
    world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")
    assert world.list_offset(at=2) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert world.list_offset(-2, at=2) == (0, 0), "where it begins is known"
    assert world.fetch(2, at=2).error_code == 0
    world.run_until(lambda: world.partition(2).high_watermark == 2, "broker 3 is out, or broker 1 is back", 30_000)
    assert world.list_offset(at=2) == (0, 2)


def test_a_follower_that_restarts_keeps_what_is_committed_beyond_its_hw() -> None:
    """G1: the follower restarts, and its leader dies immediately."""
    world = rig()
    for number in range(3):
        world.produce(b"%d" % number)
    world.node(2).kill()
    world.run_until(lambda: world.node(2).is_running and world.node(2).broker is not None, "it is back")
    world.await_isr([1, 2, 3])
    world.node(1).kill()
    world.run_until(lambda: world.leader() in (2, 3), "another one leads")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(2) == [b"0", b"1", b"2"]


def test_a_leader_of_the_past_cuts_off_what_it_alone_had() -> None:
    """The isolated leader still accepts acks=1; none of these records was committed."""
    world = rig()
    world.produce(b"common")
    pairs = cut(world, 1, 2, 3, controller=True)
    for number in range(3):
        assert world.produce(b"alone %d" % number, to=1, acks=1)[0] == 0
    assert world.produce(b"alone", to=1, timeout_ms=200)[0] == ErrorCode.REQUEST_TIMED_OUT
    world.run_until(lambda: world.leader() == 2 and world.partition(2).role is Role.LEADER, "broker 2 leads")
    world.await_isr([2, 3])
    world.run_for(100)
    assert world.produce(b"together", to=2) == (0, 1)
    assert world.partition(1).role is Role.LEADER, "it does not know yet"
    assert world.partition(1).high_watermark == 1, "and commits nothing"
    heal(world, pairs)
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(1) == world.values(2) == [b"common", b"together"]


def test_no_leader_when_nobody_may_lead() -> None:
    world = rig(min_isr=1)
    world.produce(b"first")
    for number in (2, 3):
        world.cluster.prevent_start(f"broker{number}")
        world.node(number).kill()
    world.await_isr([1])
    world.run_for(50)
    assert world.produce(b"second", to=1) == (0, 1)
    world.cluster.prevent_start("broker1")
    world.node(1).kill()
    world.cluster.allow_start("broker2")
    world.run_until(lambda: world.image().leader == NO_LEADER, "nobody leads")
    world.run_until(lambda: world.node(2).broker is not None and world.node(2).is_running, "broker 2 is back")
    world.run_for(1000)
    partition = world.partition(2)
    assert (partition.role, partition.leadership) == (Role.FOLLOWER, None)
    assert world.produce(b"third", to=2)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    row = world.fetch(0, at=2)
    assert (row.error_code, row.records) == (0, b""), "a follower serves what it knows to be committed"
    assert world.list_offset(at=2)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.cluster.allow_start("broker1")
    world.run_until(lambda: world.leader() == 1, "who has all leads again")
    world.cluster.allow_start("broker3")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(2) == [b"first", b"second"]


def test_an_unclean_leader_makes_the_others_forget() -> None:
    world = rig(min_isr=1, unclean_leader_election_enable="true")
    world.produce(b"common")
    for number in (2, 3):
        world.cluster.prevent_start(f"broker{number}")
        world.node(number).kill()
    world.await_isr([1])
    world.run_for(50)
    for number in range(4):
        assert world.produce(b"lost %d" % number, to=1)[0] == 0
    world.cluster.prevent_start("broker1")
    world.node(1).kill()
    world.cluster.allow_start("broker2")
    world.run_until(lambda: world.leader() == 2 and world.partition(2).role is Role.LEADER, "broker 2 leads", 30_000)
    assert world.produce(b"new", to=2) == (0, 1)
    world.cluster.allow_start("broker1")
    world.cluster.allow_start("broker3")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(1) == world.values(2) == world.values(3) == [b"common", b"new"]


# -- brokers that lose what they had


@pytest.mark.parametrize("number", [1, 3])
def test_who_lost_its_disk_does_not_lead_before_it_has_all_again(number: int) -> None:
    """G9, KIP-903: it comes back empty, as another incarnation and with another directory."""
    world = rig()
    for count in range(5):
        world.produce(b"%d" % count)
    name = f"broker{number}"
    world.cluster.prevent_start(name)
    world.node(number).kill()
    world.node(number).disk.wipe()
    world.cluster.allow_start(name)
    world.run_until(lambda: number not in world.image().isr, "it leaves the ISR")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(number) == [b"%d" % count for count in range(5)]


def test_a_leader_that_loses_its_end_with_the_power_is_not_the_leader_it_was() -> None:
    """The broker starts again before its failure is noticed. Its image still has it as the leader."""
    world = rig()
    for count in range(5):
        world.produce(b"%d" % count)
    world.cluster.prevent_start("broker1")
    world.node(1).power_off(Loss.ALL)
    world.run_for(50)
    world.cluster.allow_start("broker1")
    world.run_until(lambda: world.leader() in (2, 3), "another one leads")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.values(1) == world.values(2) == [b"%d" % count for count in range(5)]


def test_a_follower_whose_disk_breaks_leaves_and_the_others_go_on() -> None:
    world = rig()
    world.produce(b"first")
    world.cluster.prevent_start("broker3")
    world.node(3).disk.fail_with = BROKEN
    assert world.produce(b"second")[0] in (0, ErrorCode.REQUEST_TIMED_OUT)
    world.await_isr([1, 2])
    assert world.produce(b"third")[0] == 0
    world.node(3).disk.fail_with = None
    world.node(3).kill()
    world.cluster.allow_start("broker3")
    world.await_isr([1, 2, 3])
    world.await_equal()


# -- deletion


def test_records_are_deleted_on_all_replicas() -> None:
    world = rig()
    for count in range(6):
        world.produce(b"%d" % count)
    assert delete_before(world, 4) == (0, 4)
    assert [world.partition(n).log.log_start_offset for n in (1, 2, 3)] == [4, 4, 4]
    assert delete_before(world, 3) == (0, 4)
    assert delete_before(world, -1) == (0, 6)
    assert delete_before(world, 7)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_begins_with_a_batch_of_which_a_part_is_deleted() -> None:
    world = Replicated()
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="1")
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    world.await_isr([1, 2])
    for values in ((b"0", b"1", b"2"), (b"3", b"4", b"5")):
        assert world.produce(*values)[0] == 0
    assert delete_before(world, 4) == (0, 4)
    world.cluster.allow_start("broker3")
    world.await_isr([1, 2, 3])
    world.await_equal()
    assert world.partition(3).log.log_start_offset == 4
    assert world.produce(b"6")[0] == 0
    world.await_equal()


def test_a_deletion_waits_for_followers_that_live() -> None:
    world = rig()
    for count in range(6):
        world.produce(b"%d" % count)
    world.node(3).machine.pause()
    assert delete_before(world, 4, timeout_ms=200)[0] == ErrorCode.REQUEST_TIMED_OUT
    assert world.partition(1).log.log_start_offset == 4
    assert not world.partition(1).start_watchers
    world.await_isr([1, 2])
    world.run_until(lambda: world.controller.metadata.image.brokers[3].fenced, "it is fenced")
    world.run_for(50)
    assert delete_before(world, 5) == (0, 5), "nobody waits for who is gone"
    world.node(3).machine.resume()
    world.await_isr([1, 2, 3])
    world.run_until(lambda: world.partition(3).log.log_start_offset == 5, "it deletes them too")


def test_a_topic_made_again_under_its_name_has_nothing_of_the_old_one() -> None:
    """G14"""
    world = rig()
    for count in range(3):
        world.produce(b"old %d" % count)
    old_id = world.topic_id()
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="orders")], timeout_ms=1000)
    assert world.client.call("broker1", request, DeleteTopicsResponse).responses[0].error_code == 0
    world.create_topic("orders", [[2, 3, 1]], min_insync_replicas="2")
    assert world.produce(b"new", to=2) == (0, 0)
    world.await_equal()
    assert world.values(1) == world.values(3) == [b"new"]
    stale = world.client.call("broker2", fetch_request(old_id, 0, 0), FetchResponse)
    assert stale.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    refused = world.client.call("broker2", produce_request(old_id, 0, batch_of(b"x")), ProduceResponse)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- waiting producers


def test_a_consumer_that_waits_is_woken_by_the_commit() -> None:
    world = rig()
    world.produce(b"first")
    answers: list[Message | None] = []
    client = world.client
    request = fetch_request(world.topic_id(), 0, 1, max_wait_ms=10_000)
    client.process.enter(lambda: client.send("broker1", request, answers.append, timeout_ms=20_000))
    world.run_for(300)
    assert not answers
    began_us = world.world.now_us
    other = type(client)(world.cluster, "other")
    data = produce_request(world.topic_id(), 0, batch_of(b"second"))
    other.process.enter(lambda: other.send("broker1", data, lambda response: None))
    world.run_until(lambda: bool(answers), "the consumer is answered")
    assert world.world.now_us - began_us < 10_000


def test_fetches_with_a_wrong_epoch_are_fenced() -> None:
    """G4"""
    world = rig()
    world.produce(b"first")
    world.node(1).kill()
    world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")
    epoch = world.partition(2).leader_epoch
    assert world.fetch(0, at=2, epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.fetch(0, at=2, epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert world.fetch(0, at=2, epoch=epoch).error_code == 0


def test_a_leader_that_was_deposed_unknowingly_calls_no_offset_out_of_range() -> None:
    """A consumer with old metadata would begin again at offset 0 there."""
    world = rig()
    assert world.produce(b"0")[0] == 0
    world.await_equal()
    pairs = cut(world, 1, 2, 3, controller=True)
    world.run_until(lambda: world.partition(2).role is Role.LEADER, "broker 2 leads")
    world.await_isr([2, 3])
    assert [world.produce(value, to=2)[0] for value in (b"1", b"2", b"3")] == [0, 0, 0]
    world.run_for(1_000)
    assert world.partition(1).role is Role.LEADER, "broker 1 does not know it"
    assert world.fetch(4, at=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.fetch(1, at=1).error_code == 0, "the end of its log is no reason to doubt"
    assert world.fetch(4, at=1, epoch=world.partition(1).leader_epoch).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    heal(world, pairs)
    world.await_isr([1, 2, 3])


def test_a_reader_beyond_the_end_knows_it_while_members_follow_or_have_left() -> None:
    world = rig(min_isr=1)
    assert world.produce(b"0")[0] == 0
    world.await_equal()
    world.run_for(5_000)
    assert world.fetch(4, at=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "idle followers fetch"
    pairs = cut(world, 1, 2, 3)
    world.run_for(1_100)
    assert world.fetch(4, at=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "one of them possibly leads"
    assert world.produce(b"1", acks=1)[0] == 0, "members leave if they lack something, as in Kafka"
    world.await_isr([1], within_ms=50_000)
    world.run_for(50)
    assert world.fetch(4, at=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "no other replica can be elected"
    heal(world, pairs)
