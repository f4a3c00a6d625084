"""AlterPartition requests of leaders: what is batched, and the effect of each answer (guards G9, G10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.replication.isr_changes import IsrChanges
from barnabas.replication.leadership import Leadership
from barnabas.simulation.host import VirtualTime

TOPIC_ID = bytes(range(16))
BROKER_EPOCH = 77
_Row = AlterPartitionResponse.PartitionData


class Led:
    def __init__(self, index: int = 0) -> None:
        self.topic_partition = TopicPartition("orders", index)
        self.topic_id = TOPIC_ID
        self.leadership: Leadership | None = Leadership(1, PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 10), 0, 0)
        self.commits = 0

    @property
    def lead(self) -> Leadership:
        assert self.leadership is not None
        return self.leadership

    def on_isr_committed(self) -> None:
        self.commits += 1


class World:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.requested: list[tuple[AlterPartitionRequest, Callable[[Message | None], None]]] = []
        self.changes = IsrChanges(self.time, 1, lambda: BROKER_EPOCH, self._send)

    def _send(self, request: Message, reply: Callable[[Message | None], None]) -> None:
        assert isinstance(request, AlterPartitionRequest)
        self.requested.append((request, reply))

    def propose(self, led: Led, isr: tuple[int, ...]) -> None:
        led.lead.propose(isr)
        self.changes.submit(led)
        self.time.run_for(0)

    def answer(self, *rows: _Row, error: ErrorCode = ErrorCode.NONE) -> None:
        topics = [AlterPartitionResponse.TopicData(topic_id=TOPIC_ID, partitions=list(rows))] if rows else []
        self.requested[-1][1](AlterPartitionResponse(error_code=error, topics=topics))
        self.time.run_for(0)

    def last(self) -> AlterPartitionRequest:
        return self.requested[-1][0]


def row(code: ErrorCode = ErrorCode.NONE, isr: tuple[int, ...] = (), epoch: int = 11, index: int = 0) -> _Row:
    return _Row(
        partition_index=index, error_code=code, leader_id=1, leader_epoch=5, isr=list(isr), partition_epoch=epoch
    )


def test_what_is_asked() -> None:
    world, led = World(), Led()
    led.lead.on_fetch(2, 10, 0, 41, 10, 0)
    world.propose(led, (1, 2))
    request = world.last()
    assert (request.broker_id, request.broker_epoch) == (1, BROKER_EPOCH)
    requested = request.topics[0].partitions[0]
    assert (requested.partition_index, requested.leader_epoch, requested.partition_epoch) == (0, 5, 10)
    members = [(state.broker_id, state.broker_epoch) for state in requested.new_isr_with_epochs]
    assert members == [(1, BROKER_EPOCH), (2, 41)], "the incarnations that it means (KIP-903)"


def test_an_accepted_proposal_is_the_isr() -> None:
    world, led = World(), Led()
    world.propose(led, (1, 2))
    world.answer(row(isr=(1, 2)))
    assert (led.lead.isr, led.lead.partition_epoch, led.lead.proposed, led.commits) == ((1, 2), 11, None, 1)


def test_one_request_at_a_time_and_the_rest_together() -> None:
    world = World()
    partitions = [Led(index) for index in range(4)]
    world.propose(partitions[0], (1, 2))
    for led in partitions[1:]:
        world.propose(led, (1, 3))
    assert len(world.requested) == 1
    world.answer(row(isr=(1, 2)))
    assert len(world.requested) == 2
    assert [requested.partition_index for requested in world.last().topics[0].partitions] == [1, 2, 3]
    world.answer(*(row(isr=(1, 3), index=index) for index in (1, 2, 3)))
    assert [led.lead.isr for led in partitions] == [(1, 2), (1, 3), (1, 3), (1, 3)]
    assert len(world.requested) == 2


def test_thousands_of_proposals_are_several_requests() -> None:
    world = World()
    partitions = [Led(index) for index in range(2_500)]
    for led in partitions:
        led.lead.propose((1, 2))
        world.changes.submit(led)
    world.time.run_for(0)
    sizes = []
    while any(led.lead.proposed is not None for led in partitions):
        asked = [requested.partition_index for requested in world.last().topics[0].partitions]
        sizes.append(len(asked))
        world.answer(*(row(isr=(1, 2), index=index) for index in asked))
    assert sizes == [1_000, 1_000, 500]
    assert {led.lead.isr for led in partitions} == {(1, 2)}


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_proposal_is_withdrawn(code: ErrorCode) -> None:
    world, led = World(), Led()
    world.propose(led, (1, 2))
    world.answer(row(code))
    assert (led.lead.isr, led.lead.proposed) == ((1, 2, 3), None)
    world.time.run_for(1000)
    assert len(world.requested) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_an_outdated_proposal_counts_until_the_newer_metadata_arrives(code: ErrorCode) -> None:
    """The maximal ISR must not shrink on a guess: what was asked may have happened."""
    world, led = World(), Led()
    world.propose(led, (1, 2))
    world.answer(row(code))
    world.time.run_for(1000)
    assert len(world.requested) == 1
    assert led.lead.proposed == (1, 2)
    led.lead.on_image(PartitionImage((1, 2, 3), (1, 3), 1, 5, 12), 0)
    after = led.lead
    assert (after.isr, after.proposed) == ((1, 3), None)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER])
def test_anything_else_is_asked_again(code: ErrorCode) -> None:
    """Guard G10."""
    world, led = World(), Led()
    world.propose(led, (1, 2))
    world.answer(row(code))
    assert len(world.requested) == 1, "after a while"
    world.time.run_for(100)
    assert len(world.requested) == 2
    world.answer(row(isr=(1, 2)))
    assert led.lead.isr == (1, 2)


def test_no_answer_and_an_answer_without_the_partition_are_asked_again() -> None:
    world, led = World(), Led()
    world.propose(led, (1, 2))
    world.requested[-1][1](None)
    world.time.run_for(100)
    world.answer()
    world.time.run_for(100)
    world.answer(error=ErrorCode.STALE_BROKER_EPOCH)
    world.time.run_for(100)
    assert len(world.requested) == 4
    world.answer(row(isr=(1, 2)))
    assert led.lead.isr == (1, 2)


def test_an_answer_that_the_metadata_has_overtaken_changes_nothing() -> None:
    world, led = World(), Led()
    world.propose(led, (1, 2))
    led.lead.on_image(PartitionImage((1, 2, 3), (1, 3), 1, 5, 12), 0)
    world.answer(row(isr=(1, 2), epoch=11))
    assert (led.lead.isr, led.commits) == ((1, 3), 0)


def test_an_answer_to_an_earlier_term_changes_nothing() -> None:
    world, led = World(), Led()
    world.propose(led, (1, 2))
    led.leadership = Leadership(1, PartitionImage((1, 2, 3), (1, 2, 3), 1, 6, 11), 0, 0)
    world.answer(row(isr=(1, 2), epoch=12))
    assert led.lead.isr == (1, 2, 3)


def test_what_is_overtaken_before_it_was_sent_is_not_sent() -> None:
    world, led, other = World(), Led(0), Led(1)
    world.propose(other, (1, 3))
    led.lead.propose((1, 2))
    world.changes.submit(led)
    led.leadership = None
    world.answer(row(isr=(1, 3), index=1))
    assert len(world.requested) == 1


def test_nothing_had_to_change() -> None:
    world, led = World(), Led()
    world.propose(led, (1, 2, 3))
    world.answer(row(isr=(1, 2, 3), epoch=10))
    assert (led.lead.proposed, led.lead.isr) == (None, (1, 2, 3))


def test_an_outdated_proposal_is_sent_again_if_no_newer_metadata_arrive() -> None:
    """The controller answered from a decision that was lost with its office, or with a write to ZooKeeper. The ISR of
    the partition did not change any more.
    """
    world, led, replaced = World(), Led(0), Led(1)
    for each in (led, replaced):
        each.lead.propose((1, 2))
        world.changes.submit(each)
    world.time.run_for(0)
    world.answer(row(ErrorCode.FENCED_LEADER_EPOCH), row(ErrorCode.FENCED_LEADER_EPOCH, index=1))
    replaced.lead.on_image(PartitionImage((1, 2, 3), (1, 3), 1, 5, 12), 0)
    world.time.run_for(3_000)
    assert len(world.requested) == 2
    assert [each.partition_index for each in world.last().topics[0].partitions] == [0]
    world.answer(row(isr=(1, 2)))
    assert (led.lead.isr, led.commits) == ((1, 2), 1)


def test_nothing_is_counted_before_the_first_change() -> None:
    changes = World().changes
    assert (changes.shrinks, changes.expands, changes.failures) == (0, 0, 0)
