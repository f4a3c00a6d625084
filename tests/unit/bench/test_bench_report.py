"""The bench's arithmetic: percentiles, ratios of medians, goals, and that every step and experiment can run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"
sys.path.insert(0, str(BENCH))

import client  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import storage  # noqa: E402
from cluster_rows import CLUSTER_STEPS  # noqa: E402
from group_rows import GROUP_STEPS  # noqa: E402
from security import SECURITY  # noqa: E402
from workloads import EXPERIMENTS, STEPS, Goal  # noqa: E402
from zookeeper_mode import ZK_MODE_STEPS  # noqa: E402

REQUESTS = [metric for step in STEPS for metric in step.metrics.values()]
STORAGE = [metric for experiment in EXPERIMENTS for metric in experiment.metrics]


@pytest.mark.parametrize(
    "values, share, expected",
    [
        ([5.0], 0.5, 5.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([3.0, 1.0, 2.0], 1.0, 3.0),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], share: float, expected: float) -> None:
    assert client.percentile(values, share) == expected


def test_payload_has_its_size_and_does_not_repeat() -> None:
    for size_bytes in (1, 100, 1_000, 10_000):
        assert len(client.payload(size_bytes)) == size_bytes
    value = client.payload(10_000)
    assert len({value[start : start + 8] for start in range(0, len(value), 8)}) == len(value) // 8


def test_rows_compare_medians_and_judge_the_goal() -> None:
    values: report.Values = {
        "unbatched": {"kafka": [10.0, 30.0, 20.0], "barnabas": [50.0, 70.0, 60.0]},
        "one_in_flight_p50": {"kafka": [1.0], "barnabas": [0.9]},
        "rss_idle": {"barnabas": [59.0]},
        "cold_start": {"kafka": [3.5]},
    }
    rows = {row["metric"]: row for row in report.summarize(values, REQUESTS)}
    assert (rows["unbatched"]["ratio"], rows["unbatched"]["met"]) == (3.0, True)
    assert (rows["unbatched"]["kafka"]["min"], rows["unbatched"]["kafka"]["max"]) == (10.0, 30.0)
    assert (rows["one_in_flight_p50"]["ratio"], rows["one_in_flight_p50"]["met"]) == (0.9, False)
    assert (rows["rss_idle"]["ratio"], rows["rss_idle"]["met"]) == (None, True)
    assert rows["cold_start"]["met"] is None
    table = report.Table("Requests", "Rounds: 3.", REQUESTS)
    text = report.markdown([(table, list(rows.values()))], dict.fromkeys(report.machine(), "x"), quick=False)
    assert (
        "| produce, one record per batch | records/s | 10 / **20** / 30 | 50 / **60** / 70 | 3.00× | ≥ 3× | yes |"
        in text
    )


def test_a_row_names_what_it_is_compared_with_unless_that_is_kafka() -> None:
    values: report.Values = {
        "append": {"barnabas": [850.0, 900.0, 950.0], storage.WRITE_LOOP: [1000.0, 1100.0, 900.0]},
        "start_clean": {"kafka": [4.0], "barnabas": [0.5]},
    }
    rows = {row["metric"]: row for row in report.summarize(values, STORAGE)}
    assert (rows["append"]["ratio"], rows["append"]["met"]) == (0.9, True)
    assert (rows["start_clean"]["goal"], rows["start_clean"]["met"]) == (None, None)
    table = report.Table("Storage", "Rounds: 3.", STORAGE)
    text = report.markdown([(table, list(rows.values()))], dict.fromkeys(report.machine(), "x"), quick=True)
    assert "| 900.0 / **1000.0** / 1100.0 (write loop) | 850.0 / **900.0** / 950.0 | 0.90× | ≥ 0.8× | yes |" in text
    assert "| 4 / **4** / 4 | 0.5 / **0.5** / 0.5 | 0.12× | – | – |" in text


def test_goals() -> None:
    assert Goal(at_most=0.8).holds(100.0, 0.8)
    assert not Goal(at_most=0.8).holds(100.0, 0.81)
    assert Goal(at_least=1.0).holds(1.0, None) is None
    assert Goal(at_most=60.0, absolute=True).holds(60.0, 5.0)
    assert Goal(at_most=0.5, absolute=True).show("s") == "≤ 0.5 s"
    within = Goal(at_least=0.9, at_most=1.1)
    assert [within.holds(5.0, ratio) for ratio in (0.89, 0.9, 1.1, 1.11)] == [False, True, True, False]
    assert (within.show("s"), Goal(at_least=9.0, at_most=11.0, absolute=True).show("s")) == ("0.9–1.1×", "9–11 s")


def test_every_step_has_a_client_and_metrics_of_its_own() -> None:
    metrics = [metric.name for metric in REQUESTS + STORAGE]
    assert len(metrics) == len(set(metrics))
    for step in STEPS:
        assert step.client is None or step.client in client.WORKLOADS
        assert step.quick.keys() <= step.options.keys()


def test_every_experiment_can_be_run_in_each_size() -> None:
    assert [experiment.name for experiment in EXPERIMENTS] == list(storage.EXPERIMENTS)
    for experiment in EXPERIMENTS:
        assert experiment.quick.keys() <= experiment.options.keys()
        for quick in (True, False):
            sized = experiment.sized(quick=quick, gigabytes=2.0, rounds=None)
            assert sized.options.get("gigabytes", 2.0) == 2.0
            assert sized.options["rounds"] == {**experiment.options, **(experiment.quick if quick else {})}["rounds"]
            assert not any("{" in metric.title for metric in sized.metrics)


def test_steps_are_chosen_by_name_or_by_table_and_bring_those_they_read_from() -> None:
    steps, experiments, clusters = run.select("consume_1kb,lookup")
    assert ([step.name for step in steps], experiments, clusters) == (["batched_1kb", "consume_1kb"], ["lookup"], [])
    all_experiments = [experiment.name for experiment in EXPERIMENTS]
    all_clusters = [step.name for step in CLUSTER_STEPS]
    assert run.select("storage") == ([], all_experiments, [])
    assert run.select("speed") == (list(STEPS), [], [])
    of_groups = [step.name for step in GROUP_STEPS]
    assert run.select("groups") == ([], [], of_groups)
    assert run.select("cluster") == ([], [], [name for name in all_clusters if name not in of_groups])
    assert run.select("cluster_leaderships") == ([], [], ["cluster_create", "cluster_leaderships"])
    assert run.select("scale") == ([], ["scale"], [])
    assert run.select("history") == ([], ["history"], [])
    assert run.select("spark") == ([], ["spark", "orders"], [])
    of_security = [experiment.name for experiment in SECURITY]
    assert run.select("security") == ([], of_security, [])
    assert run.select("security_memory") == ([], ["security_memory"], [])
    in_mode = [step.name for step in ZK_MODE_STEPS]
    assert run.select("zookeeper_mode") == ([], [], in_mode)
    assert run.select(None) == (
        list(STEPS),
        [
            *all_experiments,
            "bystanders",
            *of_security,
            "scale",
            "history",
            "explain",
            "spark",
            "orders",
            "zookeeper",
        ],
        [*all_clusters, *in_mode],
    )
    with pytest.raises(SystemExit, match="no such step: nonsense"):
        run.select("nonsense")
