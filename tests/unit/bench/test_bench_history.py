"""The bench's history: every metric gets its value, and the file has every change."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import history_rows
from history_rows import HISTORY


def test_every_metric_has_its_value(tmp_path: Path) -> None:
    measured = history_rows.measure(tmp_path, partitions=200, partitions_per_topic=10, events=500, days=2, seed=3)
    assert set(measured) == {metric.name for metric in HISTORY.metrics}
    assert all(value > 0 for value in measured.values())


def test_a_quick_run_is_a_smaller_one_of_the_same() -> None:
    assert HISTORY.quick.keys() <= HISTORY.options.keys()
    for quick in (True, False):
        sized = HISTORY.sized(quick=quick, gigabytes=None, rounds=None)
        assert not any("{" in metric.title for metric in sized.metrics)
