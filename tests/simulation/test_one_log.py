"""The world of one log: its promises hold, and each of some mistakes is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.simulation.history import Violation
from barnabas.simulation.worlds.one_log import OneLog
from barnabas.storage import retention, time_search
from barnabas.storage.batch_file import BatchFile
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.follower_append import FollowerRun
from barnabas.storage.log import Log
from barnabas.storage.log_reads import LogReader
from barnabas.storage.log_sync import LogSync

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in (*range(1, 61), 160):
        OneLog(seed).run()


def _reads_are_one_batch_too_long(plant: pytest.MonkeyPatch) -> None:
    real = LogReader.read
    plant.setattr(
        LogReader,
        "read",
        lambda self, offset, size, up_to, **more: real(self, offset, size, up_to=self.log_end_offset, **more),
    )


def _cold_reads_begin_one_batch_late(plant: pytest.MonkeyPatch) -> None:
    real = ColdRead._load

    def mistaken(self: Any) -> None:
        self.wanted = self.wanted._replace(offset=self.wanted.offset + 1)
        real(self)

    plant.setattr(ColdRead, "_load", mistaken)


def _aborted_transactions_are_forgotten_when_cold(plant: pytest.MonkeyPatch) -> None:
    real = LogReader._aborted

    def mistaken(self: Any, offset: int, read: Any, *, cached: bool = False) -> Any:
        found = real(self, offset, read, cached=cached)
        return [] if found is None else found

    plant.setattr(LogReader, "_aborted", mistaken)


def _times_are_searched_after_the_log_start(plant: pytest.MonkeyPatch) -> None:
    real = time_search._first_in
    plant.setattr(time_search, "_first_in", lambda segment, time, start: real(segment, time, start + 1))


def _followers_forget_the_epoch_of_a_run(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Log, "assign_epoch", lambda self, epoch, start: self.epochs.assign(epoch, start + 1))


def _a_run_is_written_twice(plant: pytest.MonkeyPatch) -> None:
    real = FollowerRun.write

    def mistaken(self: Any) -> None:
        batches = list(self._batches)
        real(self)
        if len(batches) > 2:
            self._log.log_end_offset += 1

    plant.setattr(FollowerRun, "write", mistaken)


def _retention_spares_the_oldest(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(retention, "below_log_start", lambda segments, start: 0)


def _old_syncs_count_after_a_truncation(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(LogSync, "truncating", lambda self: None)


def _searches_end_one_batch_early(plant: pytest.MonkeyPatch) -> None:
    real = BatchFile.search
    plant.setattr(BatchFile, "search", lambda self, offset, position, **more: real(self, offset + 1, position, **more))


@pytest.mark.parametrize(
    "mistake",
    [
        _reads_are_one_batch_too_long,
        _cold_reads_begin_one_batch_late,
        _aborted_transactions_are_forgotten_when_cold,
        _times_are_searched_after_the_log_start,
        _followers_forget_the_epoch_of_a_run,
        _a_run_is_written_twice,
        _retention_spares_the_oldest,
        _old_syncs_count_after_a_truncation,
        _searches_end_one_batch_early,
    ],
)
def test_mistakes_are_found(mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        for seed in range(1, 121):
            OneLog(seed).run()
