"""Several batches of an idempotent producer in flight while the ISR is too small and grows, and the answer to each.

As in Apache Kafka, each batch is judged by itself when it arrives. One that is refused with too few replicas is not
appended and leaves no trace in the producer's state, so the next one, if it arrives when the ISR has grown, is out of
sequence: OUT_OF_ORDER_SEQUENCE_NUMBER. A producer that sends both again, in order, with their sequence numbers, has
them once. One that takes the second answer for a lost history begins a new epoch instead, and no broker can recognize
what it then sends again (docs/check.md).
"""

from __future__ import annotations

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.simulation.worlds.replicated import Replicated

PRODUCER = 7


def send(world: Replicated, sequence: int, *, epoch: int = 0) -> tuple[int, int]:
    value = f"{epoch}-{sequence}".encode()
    return world.produce(value, to=1, producer_id=PRODUCER, base_sequence=sequence, producer_epoch=epoch)


def await_isr(world: Replicated, *members: int) -> None:
    """Waits until the leader's ISR has these members."""

    def known() -> bool:
        leadership = world.partition(1).leadership
        return leadership is not None and leadership.proposed is None and set(leadership.isr) == set(members)

    world.run_until(known, f"the leader's ISR is {members}")


@pytest.fixture
def world() -> Replicated:
    """Returns a world in which broker 1 leads `orders`, which has one batch, and no other replica is in sync."""
    world = Replicated(min_insync_replicas="2")
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    assert send(world, 0) == (ErrorCode.NONE, 0)
    for number in (2, 3):
        world.cluster.prevent_start(f"broker{number}")
        world.node(number).kill()
    await_isr(world, 1)
    return world


def come_back(world: Replicated) -> None:
    world.cluster.allow_start("broker2")
    await_isr(world, 1, 2)


def test_a_batch_behind_one_that_was_refused_does_not_follow(world: Replicated) -> None:
    assert send(world, 1)[0] == ErrorCode.NOT_ENOUGH_REPLICAS
    come_back(world)
    assert send(world, 2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(world, 3)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(world, sequence) for sequence in (1, 2, 3)] == [(0, 1), (0, 2), (0, 3)]
    assert world.values(1) == [b"0-0", b"0-1", b"0-2", b"0-3"]


def test_all_that_were_refused_leave_no_trace(world: Replicated) -> None:
    assert [send(world, sequence)[0] for sequence in (1, 2, 3)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    come_back(world)
    assert [send(world, sequence) for sequence in (1, 2, 3)] == [(0, 1), (0, 2), (0, 3)]


def test_a_batch_that_was_appended_is_known_when_it_comes_again(world: Replicated) -> None:
    come_back(world)
    assert send(world, 1) == (ErrorCode.NONE, 1)
    assert send(world, 1) == (ErrorCode.NONE, 1)
    assert send(world, 2) == (ErrorCode.NONE, 2)
    assert send(world, 1) == (ErrorCode.NONE, 1), "one of its last five"
    assert world.values(1) == [b"0-0", b"0-1", b"0-2"]


def test_a_new_epoch_begins_at_0_and_what_it_repeats_is_not_known(world: Replicated) -> None:
    """Clients like librdkafka do this: the second copy is the client's, not the broker's."""
    assert send(world, 1)[0] == ErrorCode.NOT_ENOUGH_REPLICAS
    come_back(world)
    assert send(world, 2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(world, 2, epoch=1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins at 0"
    assert send(world, 0, epoch=1) == (ErrorCode.NONE, 1)
    assert send(world, 1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH, "the old epoch is over"
    assert send(world, 1, epoch=1) == (ErrorCode.NONE, 2)
