"""Planted mistakes, as parameters of the tests that must find them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from barnabas.simulation.faulty_disk import FaultyFile
from barnabas.simulation.scenario import Outcome, Settings, run
from barnabas.simulation.storage_checkers import StorageFiles

Mutation = Callable[[pytest.MonkeyPatch], None]


def cases(mistakes: Iterable[Mutation], *, late: Collection[Mutation] = ()) -> list[Any]:
    """Returns a parameter for each mistake. Those of `late` take several seconds and are for the full suite."""
    return [pytest.param(each, id=each.__name__, marks=pytest.mark.full if each in late else ()) for each in mistakes]


def first_failure(settings: Settings, seeds: Sequence[int]) -> Outcome:
    """Returns the first run that fails."""
    for seed in seeds:
        outcome = run(replace(settings, seed=seed))
        if outcome.failed:
            return outcome
    raise AssertionError("the mistake was not found")


def forget_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the syncs of the topic's files; the metadata log keeps its own. The comparison with the disk is disabled:
    it would find the mistake before the missing records are noticed.
    """
    real = FaultyFile.sync
    monkeypatch.setattr(StorageFiles, "check", lambda checker, cluster: None)
    monkeypatch.setattr(FaultyFile, "sync", lambda file: None if "/orders-" in file._path else real(file))
