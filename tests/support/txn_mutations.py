"""Mistakes that were made with transactions, patched in from outside, that the explorer must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from tests.support.txn_situations import (
    Situation,
    a_coordinator_dies_after_its_decision,
    a_coordinator_that_is_cut_off_is_asked_to_commit,
    a_deposed_coordinator_is_asked_for_stable_offsets,
    a_leader_refuses_its_markers,
    a_producer_begins_before_its_transactions_are_loaded,
    nothing_is_aborted_while_markers_are_on_their_way,
    offsets_are_asked_for_before_they_are_loaded,
)

from barnabas.broker.handlers import write_txn_markers
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.group_records import CommittedOffset, OffsetKey
from barnabas.coordinators.groups.offsets import Offsets
from barnabas.coordinators.groups.pending_offsets import PendingOffsets
from barnabas.coordinators.runtime import ShardLifecycle, ShardLog, ShardState
from barnabas.coordinators.transactions import shard, transitions
from barnabas.coordinators.transactions.coordinator import Ending, TransactionCoordinator
from barnabas.coordinators.transactions.markers import MarkerDelivery, MarkerSender
from barnabas.coordinators.transactions.shard import TransactionShard
from barnabas.coordinators.transactions.state import TxnImage
from barnabas.storage.log import Log
from barnabas.storage.log_reads import LogReader
from barnabas.storage.producers import ProducerStateManager

Mutation = Callable[[pytest.MonkeyPatch], None]


def answers_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Lets a coordinator continue when its own log has a record, before the other replicas have it (G23)."""

    def mutated(
        self: ShardLog,
        batch: bytearray,
        answered: Callable[[ErrorCode], None] | None,
        settled: Callable[[ErrorCode], None] | None = None,
    ) -> None:
        self._writer.append(self._partition, batch, lambda code, _: None)
        for reply in (settled, answered):
            if reply is not None:
                reply(ErrorCode.NONE)

    patch.setattr(ShardLog, "append_batch", mutated)


def late_markers_count(patch: pytest.MonkeyPatch) -> None:
    """Lets the marker of the last transaction end the next one (G24)."""
    patch.setattr(write_txn_markers, "is_late_marker", lambda *_: False)


def lso_is_the_hw(patch: pytest.MonkeyPatch) -> None:
    """Returns replicated records to readers of committed records."""
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def aborted_transactions_are_not_listed(patch: pytest.MonkeyPatch) -> None:
    """Returns records of aborted transactions without the list of them (G25)."""
    patch.setattr(LogReader, "_aborted", lambda self, offset, read, *, cached=False: [])


def epochs_are_not_bumped(patch: pytest.MonkeyPatch) -> None:
    """Lets a producer that was too slow continue to write in the middle of its own transaction."""

    def mutated(image: TxnImage, server_version: int, wall_ms: int) -> TxnImage:
        return transitions._decided(image, False, 0, wall_ms, -1)

    patch.setattr(shard, "fenced", mutated)


def markers_are_sent_once(patch: pytest.MonkeyPatch) -> None:
    """Ignores the answers of partition leaders to markers."""

    def mutated(
        self: MarkerSender, delivery: MarkerDelivery, led: list[TopicPartition], codes: Mapping[TopicPartition, int]
    ) -> None:
        delivery.missing.difference_update(led)
        self._conclude(delivery)

    patch.setattr(MarkerSender, "_on_codes", mutated)


def offsets_count_at_once(patch: pytest.MonkeyPatch) -> None:
    """Commits offsets of a transaction before its end."""
    shards: dict[int, Offsets] = {}
    init = Offsets.__init__

    def remember(self: Offsets, *arguments: Any) -> None:
        init(self, *arguments)
        shards[id(self.pending)] = self

    def mutated(self: PendingOffsets, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        shards[id(self)]._put(key.group_id, [(key.topic, key.partition, committed)])

    patch.setattr(Offsets, "__init__", remember)
    patch.setattr(PendingOffsets, "put", mutated)


def aborted_offsets_count(patch: pytest.MonkeyPatch) -> None:
    """Commits offsets of a transaction that was aborted."""
    end_transaction = Offsets.end_transaction

    def mutated(
        self: Offsets, producer_id: int, commit: bool, marker: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        end_transaction(self, producer_id, True, marker, done)

    patch.setattr(Offsets, "end_transaction", mutated)


def markers_of_any_epoch_count(patch: pytest.MonkeyPatch) -> None:
    """Lets a log accept a marker that is older than the producer's last records (G24)."""
    patch.setattr(ProducerStateManager, "check_marker", lambda *_: None)
    late_markers_count(patch)


def answers_before_it_is_loaded(patch: pytest.MonkeyPatch) -> None:
    """Lets a coordinator of groups or transactions answer as soon as it leads the partition, before it is loaded."""
    check_serving = ShardLifecycle.check_serving

    def mutated(self: ShardLifecycle) -> None:
        if self.state is not ShardState.LOADING:
            check_serving(self)

    patch.setattr(ShardLifecycle, "check_serving", mutated)


def decided_transactions_are_left_alone(patch: pytest.MonkeyPatch) -> None:
    """Lets a coordinator send markers only for transactions that it decided itself, not for decisions that it reads in
    its log.
    """
    on_loaded = TransactionShard.on_loaded

    def mutated(self: TransactionShard) -> None:
        with patch.context() as loading:
            loading.setattr(TransactionShard, "_deliver", lambda *_: None)
            on_loaded(self)

    patch.setattr(TransactionShard, "on_loaded", mutated)


def the_next_epoch_is_fenced_until_the_last_is_complete(patch: pytest.MonkeyPatch) -> None:
    """Treats an EndTxn with the epoch that the producer has just received as one of another producer (KAFKA-18464)."""
    end = TransactionCoordinator._end

    def mutated(self: TransactionCoordinator, requested: Ending, new_id: int | None) -> bool:
        _, transaction = self._known(requested.transactional_id)
        image = transaction.image
        if transaction.pending is None and image.is_prepared and requested.producer.epoch == image.producer_epoch:
            raise RequestFailed(ErrorCode.PRODUCER_FENCED)
        return end(self, requested, new_id)

    patch.setattr(TransactionCoordinator, "_end", mutated)


def waiting_readers_do_not_get_the_failure(patch: pytest.MonkeyPatch) -> None:
    """Lets a read that waited for pending commits succeed although these were lost when a successor took over, and
    although the followers do not fetch.
    """
    patch.setattr(ShardLog, "_worst_since", lambda self, number: ErrorCode.NONE)
    patch.setattr(ShardLog, "is_followed", True)


#: The first seed that finds each mistake.
FOUND_BY: dict[Mutation, int] = {
    late_markers_count: 3,
    lso_is_the_hw: 1,
    aborted_transactions_are_not_listed: 1,
    epochs_are_not_bumped: 4,
    offsets_count_at_once: 1,
    aborted_offsets_count: 1,
    markers_of_any_epoch_count: 1,
    the_next_epoch_is_fenced_until_the_last_is_complete: 1,
}

#: Mistakes that no seed finds reliably: the situations of `txn_situations` that do, and the text of the finding.
FOUND_IN: dict[Mutation, list[tuple[Situation, str]]] = {
    answers_before_it_is_durable: [
        (
            a_coordinator_that_is_cut_off_is_asked_to_commit,
            "the leader that was cut off acknowledged a commit that no other broker has",
        ),
    ],
    answers_before_it_is_loaded: [
        (offsets_are_asked_for_before_they_are_loaded, "a committed offset went back"),
        (partial(a_producer_begins_before_its_transactions_are_loaded, 1), "the id of the last producer"),
        (partial(a_producer_begins_before_its_transactions_are_loaded, 2), "the id of the last producer"),
    ],
    decided_transactions_are_left_alone: [
        (partial(a_coordinator_dies_after_its_decision, version, commit), f"not within 20000 ms: {shown}")
        for version in (1, 2)
        for commit, shown in ((True, "CompleteCommit"), (False, "CompleteAbort"))
    ],
    markers_are_sent_once: [
        (partial(a_leader_refuses_its_markers, commit), "the transaction is not ended everywhere")
        for commit in (True, False)
    ],
    waiting_readers_do_not_get_the_failure: [
        (a_deposed_coordinator_is_asked_for_stable_offsets, "answered an old offset"),
    ],
    the_next_epoch_is_fenced_until_the_last_is_complete: [
        (partial(nothing_is_aborted_while_markers_are_on_their_way, commit), "answered PRODUCER_FENCED while markers")
        for commit in (True, False)
    ],
}
