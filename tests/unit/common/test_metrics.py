"""The text format of Prometheus, and durations in buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.common.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Sample,
    TimeBuckets,
    histogram,
    labelled,
    lines_of,
    single,
)


def text_of(*families: Family) -> str:
    return "".join(line for family in families for line in lines_of(family))


def test_a_family_has_help_kind_and_a_line_for_each_sample() -> None:
    family = Family("bytes_total", COUNTER, "Bytes.", [Sample((), 3), Sample((("topic", "t"), ("p", "0")), 2.5)])
    assert text_of(family) == (
        '# HELP bytes_total Bytes.\n# TYPE bytes_total counter\nbytes_total 3\nbytes_total{topic="t",p="0"} 2.5\n'
    )


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")) | st.sampled_from('"\\\n')))
def test_any_label_value_comes_back_from_prometheus_own_parser(value: str) -> None:
    (family,) = text_string_to_metric_families(text_of(labelled("m", GAUGE, "Help.", "label", [(value, 1)])))
    assert family.samples[0].labels == {"label": value}


@pytest.mark.parametrize(
    ("elapsed_ms", "le"),
    [(0, 0.001), (1, 0.002), (2, 0.004), (3, 0.004), (4, 0.008), (1000, 1.024), (1 << 30, float("inf"))],
)
def test_a_duration_is_below_the_bound_of_its_bucket(elapsed_ms: int, le: float) -> None:
    times = TimeBuckets()
    times.add(elapsed_ms)
    buckets = [sample for sample in histogram((), [times]) if sample.suffix == "_bucket" and sample.value]
    bounds = [float(dict(sample.labels)["le"]) for sample in buckets]
    assert min(bounds) == le


def test_a_histogram_is_cumulative_and_adds_up() -> None:
    first, second = TimeBuckets(), TimeBuckets()
    for elapsed_ms in (0, 5, 5_000):
        first.add(elapsed_ms)
    second.add(7)
    family = Family("seconds", HISTOGRAM, "Help.", histogram((("request", "Produce"),), [first, second]))
    (parsed,) = text_string_to_metric_families(text_of(family))
    buckets = [sample.value for sample in parsed.samples if sample.name == "seconds_bucket"]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (1, 4)
    values = {sample.name: sample.value for sample in parsed.samples if sample.name != "seconds_bucket"}
    assert values == {"seconds_count": 4, "seconds_sum": 5.012}


def test_a_single_value() -> None:
    assert text_of(single("up", GAUGE, "1.", 1)).endswith("\nup 1\n")
