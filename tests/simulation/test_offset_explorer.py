"""The world of offsets in memory: its promises hold, and each of some mistakes is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.support.offset_explorer import OffsetExplorer

from barnabas.coordinators.groups.committers import Committers
from barnabas.coordinators.groups.group_records import CommittedOffset, OffsetKey
from barnabas.coordinators.groups.offset_removal import OffsetRemoval
from barnabas.coordinators.groups.offsets import Offsets
from barnabas.coordinators.groups.pending_offsets import PendingOffsets
from barnabas.coordinators.runtime import ShardLog
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 41):
        OffsetExplorer(seed).run()


def _later_offsets_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingOffsets, "supersede", lambda self, keys: None)


def _all_members_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committers, "validate_transactional", lambda self, request: None)


def _readers_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    real = ShardLog.when_settled

    def mistaken(self: ShardLog, callback: Any, *, has_timeout: bool = False) -> None:
        queue, self._queue = self._queue, type(self._queue)()
        real(self, callback, has_timeout=has_timeout)
        self._queue = queue

    patch.setattr(ShardLog, "when_settled", mistaken)


def _offsets_in_transactions_expire(patch: pytest.MonkeyPatch) -> None:
    real = OffsetRemoval._past_retention

    def mistaken(self: OffsetRemoval, *more: Any) -> Any:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(Offsets, "unstable_of", lambda self, group_id: frozenset())
            return real(self, *more)

    patch.setattr(OffsetRemoval, "_past_retention", mistaken)


def _aborted_offsets_count(patch: pytest.MonkeyPatch) -> None:
    real = PendingOffsets.end

    def mistaken(self: PendingOffsets, producer_id: int, *, commit: bool) -> Mapping[OffsetKey, CommittedOffset]:
        left = dict(self._by_producer)
        found = real(self, producer_id, commit=commit)
        self._by_producer.update({} if commit else left)
        return found

    patch.setattr(PendingOffsets, "end", mistaken)


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (_later_offsets_do_not_count, "offsets"),
        (_all_members_commit, "the answer to TxnOffsetCommit|not answered yet"),
        (_readers_do_not_wait, "an answer before the commits"),
        (_offsets_in_transactions_expire, "offsets"),
        (_aborted_offsets_count, "decided otherwise|offsets"),
    ],
)
def test_mistakes_are_found(mistake: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError), match=found):
        for seed in range(1, 41):
            OffsetExplorer(seed).run()
