"""The world of a controller's reads and writes of znodes: its promises hold, and each of some mistakes is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.znode_access_explorer import ZnodeAccessExplorer

from barnabas.controller.zookeeper.fenced_writer import Conflict, FencedWriter
from barnabas.controller.zookeeper.znode_reader import ZnodeReader
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 41):
        ZnodeAccessExplorer(seed).run()


@pytest.mark.full
def test_every_promise_holds_in_many_runs() -> None:
    for seed in range(41, 300):
        ZnodeAccessExplorer(seed).run()


def _lost_answers_count_as_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FencedWriter, "_lost", lambda self, attempt: self._settle(attempt, ()))


def _a_refused_group_is_one_conflict(patch: pytest.MonkeyPatch) -> None:
    def mistaken(self: FencedWriter, attempt: Any) -> None:
        self._settle(attempt, [Conflict(attempt.units[0], {})])

    patch.setattr(FencedWriter, "_refuse", mistaken)


def _the_check_is_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("barnabas.controller.zookeeper.fenced_writer._FENCED", frozenset())


def _closed_readers_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZnodeReader, "close", lambda self: self._queue.clear())


def _lost_reads_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZnodeReader, "resume", lambda self: None)


def _forgotten_znodes_are_still_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZnodeReader, "forget", lambda self, path: self._data.pop(path, None))


@pytest.mark.parametrize(
    "mistake",
    [
        _lost_answers_count_as_done,
        _a_refused_group_is_one_conflict,
        _the_check_is_left_out,
        _closed_readers_go_on,
        _lost_reads_are_not_repeated,
        _forgotten_znodes_are_still_found,
    ],
)
def test_a_mistake_is_found(mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError, KeyError)):
        for seed in range(1, 41):
            ZnodeAccessExplorer(seed).run()
