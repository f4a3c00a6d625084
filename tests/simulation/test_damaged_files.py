"""The world of damaged files: its promises hold, and each of some mistakes is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.simulation.history import Violation
from barnabas.simulation.worlds.damaged_files import DamagedFiles
from barnabas.storage.offline import dump, repair, verify
from barnabas.storage.recovery import index_check, rescan

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 61):
        DamagedFiles(seed).run()


def _snapshots_are_not_verified(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(verify.PartitionVerification, "_snapshots", lambda self: [])


def _indexes_are_not_rebuilt(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(repair, "_INDEX_FAULTS", frozenset())


def _last_entries_are_trusted(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(index_check, "do_last_entries_fit", lambda segment: True)
    plant.setattr(rescan, "do_last_entries_fit", lambda segment: True)


def _the_dump_leaves_out_a_file(plant: pytest.MonkeyPatch) -> None:
    real: Any = dump.dump_files

    def shorter(disk: Any, files: Any, *more: Any) -> None:
        real(disk, [file for file in files if file.name.endswith(".log")][1:], *more)

    plant.setattr("barnabas.simulation.worlds.damaged_files.dump_files", shorter)


@pytest.mark.parametrize(
    "mistake",
    [_snapshots_are_not_verified, _indexes_are_not_rebuilt, _last_entries_are_trusted, _the_dump_leaves_out_a_file],
)
def test_mistakes_are_found(mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(1, 61):
            DamagedFiles(seed).run()
