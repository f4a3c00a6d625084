"""Hanging transactions: open ones that no coordinator has in that partition (KIP-664)."""

from __future__ import annotations

import pytest

from barnabas.cli.transactions import hanging
from barnabas.cli.transactions_view import Described, ProducerState
from barnabas.common.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def writer(partition: TopicPartition, producer_id: int = 7) -> ProducerState:
    return ProducerState(partition, producer_id, 0, 0, 3, 1_000, 10)


def transaction(state: str, *partitions: TopicPartition, producer_id: int = 7) -> Described:
    return Described("t", 1, producer_id, 0, state, 60_000, 500, partitions)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_what_a_coordinator_will_end_does_not_hang(state: str) -> None:
    assert hanging([writer(A), writer(B)], [transaction(state, A)]) == [writer(B)]


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_what_a_coordinator_has_done_with_hangs(state: str) -> None:
    assert hanging([writer(A)], [transaction(state)]) == [writer(A)]


def test_what_belongs_to_another_producer_hangs() -> None:
    assert hanging([writer(A)], []) == [writer(A)]
    assert hanging([writer(A)], [transaction("Ongoing", A, producer_id=8)]) == [writer(A)]
