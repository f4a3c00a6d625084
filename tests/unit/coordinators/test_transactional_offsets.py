"""Offsets written in transactions: when they take effect, which producers can write them, and which of two takes
effect.
"""

from __future__ import annotations

import pytest
from tests.support.group_world import Answer, Context, GroupWorld, fetched

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.batch import encode_end_txn_marker

ORDERS = ("orders", 0)
PRODUCER = 9


def send(
    world: GroupWorld,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str = "",
    topic: str = "orders",
) -> Answer[TxnOffsetCommitResponse]:
    row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    answer: Answer[TxnOffsetCommitResponse] = Answer(3)
    world.coordinator.commit_offsets_in_transaction(Context(3), request, answer)
    return answer


def code_of(answer: Answer[TxnOffsetCommitResponse]) -> int:
    return answer.response.topics[0].partitions[0].error_code


def end(world: GroupWorld, commit: bool, *, producer_id: int = PRODUCER) -> list[ErrorCode]:
    marker = encode_end_txn_marker(
        commit=commit,
        coordinator_epoch=0,
        timestamp=world.host.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=0,
    )
    codes: list[ErrorCode] = []
    world.coordinator.end_transaction(0, producer_id, commit, marker, codes.append)
    return codes


def committed(world: GroupWorld) -> int | None:
    found = world.offsets("g").get(ORDERS)
    return None if found is None else found.offset


def is_unstable(world: GroupWorld) -> bool:
    shard = world.coordinator.shard(0)
    assert shard is not None
    return ORDERS in shard.offsets.unstable_of("g")


@pytest.mark.parametrize(("commit", "offset"), [(True, 5), (False, None)])
@pytest.mark.parametrize("restarts", [False, True])
def test_they_count_when_the_marker_says_so(commit: bool, offset: int | None, restarts: bool) -> None:
    world = GroupWorld()
    assert code_of(send(world, 5)) == 0
    if restarts:
        world = world.restart()
    assert committed(world) is None
    assert is_unstable(world)
    assert end(world, commit) == [ErrorCode.NONE]
    assert committed(world) == offset
    assert not is_unstable(world)
    assert committed(world.restart()) == offset


def test_the_last_one_of_a_transaction_counts() -> None:
    world = GroupWorld()
    for offset in (5, 6):
        send(world, offset)
    end(world, True)
    assert committed(world) == committed(world.restart()) == 6


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_written_behind_it_counts_though_the_transaction_ends_later(restarts: bool) -> None:
    """Compaction keeps the later record, too."""
    world = GroupWorld()
    send(world, 5)
    world.commit("g", {ORDERS: 7})
    if restarts:
        world = world.restart()
    end(world, True)
    assert committed(world) == committed(world.restart()) == 7


def test_a_deleted_offset_does_not_come_back_with_the_transaction() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS: 3})
    send(world, 5)
    world.delete("g")
    end(world, True)
    assert committed(world) is committed(world.restart()) is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_transactions_the_later_offset_counts(order: tuple[int, int], restarts: bool) -> None:
    """The order in which the two transactions are committed makes no difference."""
    world = GroupWorld()
    send(world, 5, producer_id=1)
    send(world, 6, producer_id=2)
    for producer_id in order:
        end(world, True, producer_id=producer_id)
        if restarts:
            world = world.restart()
    assert not is_unstable(world)
    assert committed(world) == committed(world.restart()) == 6


def test_transactions_of_several_producers_are_apart() -> None:
    world = GroupWorld()
    send(world, 5, producer_id=1)
    send(world, 6, producer_id=2)
    end(world, False, producer_id=2)
    assert committed(world) is None
    assert is_unstable(world)
    end(world, True, producer_id=1)
    assert not is_unstable(world)
    assert committed(world) == committed(world.restart()) == 5


def test_a_marker_counts_when_it_is_committed() -> None:
    world = GroupWorld()
    send(world, 5)
    world.log.holding = True
    codes = end(world, True)
    assert (codes, committed(world)) == ([], None)
    world.log.commit()
    assert (codes, committed(world)) == ([ErrorCode.NONE], 5)


def test_a_marker_that_is_refused_changes_nothing() -> None:
    world = GroupWorld()
    send(world, 5)
    world.log.refuse_with = ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(world, True) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert is_unstable(world)


def test_while_it_is_loaded_and_after_it_left_the_marker_is_to_come_again() -> None:
    world = GroupWorld(lead=False)
    world.coordinator.on_partition_leader(0, 1)
    assert end(world, True) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.pass_ms(0)
    assert end(world, True) == [ErrorCode.NONE]
    world.coordinator.on_partition_resigned(0)
    assert end(world, True) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_members_are_fenced_and_others_are_not() -> None:
    """KIP-447."""
    world = GroupWorld()
    (member,) = world.stable("g")
    assert code_of(send(world, 5, generation=1, member_id=member)) == 0
    assert code_of(send(world, 5, generation=2, member_id=member)) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(send(world, 5, generation=1, member_id="nobody")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(send(world, 5)) == 0  # a producer of before that
    assert code_of(send(GroupWorld(), 5, generation=1, member_id="m")) == ErrorCode.ILLEGAL_GENERATION


def test_what_cannot_be_kept_is_refused() -> None:
    world = GroupWorld()
    assert code_of(send(world, 5, metadata="x" * 5000)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert code_of(send(world, 5, topic="none")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not is_unstable(world)


def test_an_open_transaction_keeps_its_group() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS: 3})
    send(world, 5)
    world.pass_ms(8 * 24 * 3_600_000)
    assert committed(world) == 3
    end(world, False)
    world.pass_ms(3_600_000)
    assert committed(world) is None
    assert world.find("g") is None


def test_a_group_comes_into_being_with_its_first_offset() -> None:
    world = GroupWorld()
    send(world, 5)
    end(world, True)
    assert world.find("g") is not None
    assert fetched(world.fetch("g", {"orders": [0]})) == {ORDERS: 5}
