"""The ZooKeeper rows of the bench: each metric gets its values from a real server, in amounts that take a moment."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import report  # noqa: E402
import zookeeper  # noqa: E402
from workloads import Experiment  # noqa: E402

_SMALL = {"rounds": 1, "requests": 5, "warm_up": 100, "piped": 200, "watchers": 3, "znodes": 500}


def test_every_metric_gets_a_value(tmp_path: Path) -> None:
    values: report.Values = {}
    experiment = Experiment("zookeeper", zookeeper.ZOOKEEPER.metrics, dict(_SMALL), {})
    zookeeper.run(experiment, tmp_path, ["barnabas"], values)
    assert set(values) == {metric.name for metric in experiment.metrics}
    assert all(each["barnabas"][0] > 0 for each in values.values())
    assert list(tmp_path.iterdir()) == []
