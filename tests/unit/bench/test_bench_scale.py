"""The bench's large cluster: its figures agree, and every metric gets its value."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import scale
from scale import SCALE


def test_a_broker_of_four_fails_with_its_share_of_the_partitions() -> None:
    measured = scale.measure(brokers=4, partitions=80, partitions_per_topic=20, seed=3)
    assert set(measured) == {metric.name for metric in SCALE.metrics}
    assert measured["scale_failover_records"] == 80 * 3 // 4 + 1  # a replica on three of four, and the fencing
    assert measured["scale_leaderships"] == 80 // 4
    assert all(value > 0 for name, value in measured.items() if name not in ("scale_image_mb",))


def test_a_quick_run_is_a_smaller_one_of_the_same() -> None:
    assert SCALE.quick.keys() <= SCALE.options.keys()
    for quick in (True, False):
        sized = SCALE.sized(quick=quick, gigabytes=None, rounds=None)
        assert not any("{" in metric.title for metric in sized.metrics)
        assert sized.options["partitions"] % sized.options["partitions_per_topic"] == 0
