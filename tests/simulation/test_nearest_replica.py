"""KIP-392 with three brokers in three racks: consumers read from the replica in their rack, up to the HW that it knows
(G15).
"""

from __future__ import annotations

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication.replica_selector import LEADER, RACK_AWARE
from barnabas.simulation.worlds.replicated import Replicated, fetch_request, values_in

RACKS = ("a", "b", "c")


def rig(selector: str = RACK_AWARE, racks: tuple[str, ...] = RACKS, cache_slots: str = "1000") -> Replicated:
    """Returns a world with `orders` of one partition; broker 1, in rack a, leads."""
    world = Replicated(
        racks=racks, replica_selector_class=selector, max_incremental_fetch_session_cache_slots=cache_slots
    )
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="1")
    return world


def request(world: Replicated, offset: int, rack: str, *, max_wait_ms: int = 0) -> FetchRequest:
    made = fetch_request(world.topic_id(), 0, offset, max_wait_ms=max_wait_ms)
    made.rack_id = rack
    return made


def fetch(world: Replicated, offset: int, rack: str, *, at: int, max_wait_ms: int = 0) -> FetchResponse.PartitionData:
    made = request(world, offset, rack, max_wait_ms=max_wait_ms)
    return world.client.call(f"broker{at}", made, FetchResponse).responses[0].partitions[0]


def sent_to(world: Replicated, rack: str, offset: int = 0) -> int:
    row = fetch(world, offset, rack, at=1, max_wait_ms=500)
    assert row.error_code == 0
    assert row.preferred_read_replica < 0 or not row.records, "who is sent away gets no records"
    assert row.preferred_read_replica >= 0 or row.records, "who is not is served"
    return row.preferred_read_replica


def test_a_leader_sends_consumers_to_the_replica_in_their_rack() -> None:
    world = rig()
    assert world.produce(b"x")[0] == 0
    world.await_equal()
    begin_us = world.world.now_us
    assert [sent_to(world, rack) for rack in ("a", "b", "c", "d", "")] == [-1, 2, 3, -1, -1]
    assert world.world.now_us - begin_us < 100_000, "nobody who is sent elsewhere waits"
    row = fetch(world, 0, "b", at=2)
    assert (row.error_code, row.preferred_read_replica) == (0, -1)
    assert values_in(bytes(row.records or b"")) == [(0, b"x")]


def test_among_replicas_of_one_rack_the_leader_is_preferred_then_who_is_furthest() -> None:
    world = rig(racks=("a", "b", "b"))
    assert world.produce(b"x")[0] == 0
    world.await_equal()
    assert sent_to(world, "b") in (2, 3)
    assert sent_to(world, "a") == -1


@pytest.mark.parametrize("selector", [LEADER, ""])
def test_without_a_selector_the_leader_serves_everybody(selector: str) -> None:
    world = rig(selector)
    assert world.produce(b"x")[0] == 0
    world.await_equal()
    assert [sent_to(world, rack) for rack in RACKS] == [-1, -1, -1]


def test_nobody_is_sent_to_a_replica_out_of_sync_dead_or_without_the_offset() -> None:
    world = rig()
    assert world.produce(b"x")[0] == 0
    world.await_equal()
    assert sent_to(world, "b", 0) == 2
    assert fetch(world, 5, "b", at=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "only the leader knows about that"
    world.cluster.prevent_start("broker2")
    world.node(2).kill()
    world.await_isr([1, 3])
    world.run_for(100)
    assert sent_to(world, "b", 0) == -1
    assert sent_to(world, "c", 0) == 3
    world.cluster.allow_start("broker2")
    world.await_isr([1, 2, 3])
    world.await_equal()
    world.run_for(100)
    assert sent_to(world, "b", 0) == 2, "as soon as it is in sync again"


def test_a_consumer_that_waits_at_a_follower_has_the_record_at_once() -> None:
    """The HW goes to followers with an answer of its own, for nothing else may come for long."""
    world = rig()
    for value in (b"0", b"1", b"2"):
        answers: list[FetchResponse] = []

        def send(offset: int, answers: list[FetchResponse] = answers) -> None:
            made = request(world, offset, "b", max_wait_ms=4_000)
            world.client.send("broker2", made, lambda answer: answers.append(answer))  # type: ignore[arg-type]

        world.client.process.enter(lambda offset=int(value): send(offset))  # type: ignore[misc]
        world.run_for(1_200)
        assert not answers, "there is nothing yet"
        begin_us = world.world.now_us
        assert world.produce(value)[0] == 0
        world.run_until(lambda answers=answers: bool(answers), "the consumer has it")  # type: ignore[misc]
        assert world.world.now_us - begin_us < 50_000
        assert answers[0].responses[0].partitions[0].high_watermark == int(value) + 1
        assert world.partition(2).high_watermark == int(value) + 1


def test_followers_without_fetch_sessions_wait_for_records() -> None:
    """A leader does not know which HW it answered last if there is no session: that makes no answer urgent."""
    world = rig(cache_slots="0")
    assert world.produce(b"0")[0] == 0
    world.await_equal()
    before = world.world.trace.count
    world.run_for(5_000)
    assert world.world.trace.count - before < 5_000
    assert world.partition(2).high_watermark == 1


def test_g15_a_follower_shows_nothing_above_its_hw_and_nothing_is_out_of_range_that_it_has() -> None:
    """Guard G15."""
    world = rig()
    assert world.produce(b"0")[0] == 0
    world.await_equal()
    for peers in (("broker3", "broker1"), ("broker1", "broker3")):
        world.cluster.network.cut(*peers)
    world.run_for(100)
    assert world.produce(b"1", acks=1)[0] == 0
    world.run_until(lambda: world.partition(2).log.log_end_offset == 2, "broker 2 has it")
    assert world.partition(2).high_watermark == 1
    seen = fetch(world, 0, "b", at=2)
    assert values_in(bytes(seen.records or b"")) == [(0, b"0")], "not what broker 3 may never get"
    ahead = fetch(world, 2, "b", at=2)
    assert (ahead.error_code, bytes(ahead.records or b"")) == (0, b""), "it has that offset, it is not committed yet"
    assert fetch(world, 3, "b", at=2).error_code == ErrorCode.OFFSET_NOT_AVAILABLE, "the leader may have it"
    assert fetch(world, 3, "a", at=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_epochs_are_compared_by_followers_too() -> None:
    world = rig()
    made = request(world, 0, "b")
    for epoch, code in ((7, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)):
        made.topics[0].partitions[0].current_leader_epoch = epoch
        answer = world.client.call("broker2", made, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == code
