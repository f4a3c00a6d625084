"""The world of one coordinator of transactions in memory: its promises hold, and each of some mistakes is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.transaction_explorer import TransactionExplorer

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.transactions import markers
from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.coordinators.transactions.markers import MarkerDelivery, MarkerSender
from barnabas.coordinators.transactions.shard import TransactionShard
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 41):
        TransactionExplorer(seed).run()


def _waiting_requests_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionShard, "_wake", lambda self, transactional_id: self._waiting.pop(transactional_id, None))


def _partitions_without_a_leader_need_no_marker(patch: pytest.MonkeyPatch) -> None:
    real = MarkerSender.deliver

    def mistaken(self: MarkerSender, delivery: MarkerDelivery) -> None:
        delivery.missing = {each for each in delivery.missing if self._leaders.leader_of(each) != -1}
        real(self, delivery)

    patch.setattr(MarkerSender, "deliver", mistaken)


def _a_late_completion_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    real = TransactionShard._complete

    def mistaken(self: TransactionShard, transaction: Any) -> None:
        if getattr(self._log._writer, "refuse_with", None) is None:
            real(self, transaction)

    patch.setattr(TransactionShard, "_complete", mistaken)


def _all_partitions_are_verified(patch: pytest.MonkeyPatch) -> None:
    real = TransactionCoordinator.verify_partitions

    def mistaken(self: TransactionCoordinator, *more: Any) -> Any:
        found = real(self, *more)
        return {key: code if code != ErrorCode.TRANSACTION_ABORTABLE else ErrorCode.NONE for key, code in found.items()}

    patch.setattr(TransactionCoordinator, "verify_partitions", mistaken)


def _markers_have_another_version(patch: pytest.MonkeyPatch) -> None:
    real = markers._marker

    def mistaken(delivery: MarkerDelivery, partitions: Any) -> Any:
        marker = real(delivery, partitions)
        marker.unknown_tags = ()
        return marker

    patch.setattr(markers, "_marker", mistaken)


def _nothing_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionShard, "_begin_expiry", lambda self: None)


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (_waiting_requests_are_forgotten, "the answer for . is .None"),
        (_partitions_without_a_leader_need_no_marker, "has markers in"),
        (_a_late_completion_is_not_repeated, "is not complete"),
        (_all_partitions_are_verified, "the verification"),
        (_markers_have_another_version, "a marker of version"),
        (_nothing_expires, "never expires"),
    ],
)
def test_mistakes_are_found(mistake: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError), match=found):
        for seed in range(1, 41):
            TransactionExplorer(seed).run()
