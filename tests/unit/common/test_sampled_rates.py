"""Rates and token buckets: the values of Kafka 4.1.0's own classes (tests/data/quotas)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.sampled_rates import SampledRate, SampledTimes, TokenBucket

DATA = Path(__file__).parents[2] / "data" / "quotas"

_VALUES = st.integers(0, 20_000)
_PAUSES_MS = st.sampled_from([0, 0, 1, 3, 400, 999, 1000, 1001, 2500, 3999, 4000, 9000])


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / f"{name}-4.1.0.json.gz").read_bytes()))
    return found


def test_rates_and_throttle_times_are_those_of_kafka() -> None:
    checked = 0
    for case in cases("rates"):
        rate = SampledRate(case["samples"], case["window_ms"])
        added = SampledRate(case["samples"], case["window_ms"])
        for time_ms, value, throttle_ms, measured in case["steps"]:
            rate.record(value, time_ms)
            assert rate.excess_ms(case["bound"], time_ms) == throttle_ms, case
            assert added.add(value, case["bound"], time_ms) == throttle_ms, case
            assert rate.per_second(time_ms) == pytest.approx(measured, rel=1e-12, abs=1e-9)
            checked += throttle_ms > 0
    assert checked > 200


def test_tokens_and_throttle_times_are_those_of_kafka() -> None:
    checked = 0
    for case in cases("token-buckets"):
        bucket = TokenBucket(case["bound"], case["samples"] * case["window_ms"] / 1000, 0)
        for time_ms, value, throttle_ms, measured in case["steps"]:
            bucket.take(value, time_ms)
            assert bucket.missing_ms(time_ms) == throttle_ms, case
            assert bucket.tokens(time_ms) == pytest.approx(measured, rel=1e-12, abs=1e-9)
            checked += throttle_ms > 0
    assert checked > 200


def test_a_rate_is_empty_when_its_windows_have_passed() -> None:
    rate = SampledRate(11, 1000)
    assert rate.is_empty(0)
    rate.record(5, 0)
    assert not rate.is_empty(10_999)
    assert rate.is_empty(11_000)
    assert (rate.per_second(11_000), rate.excess_ms(0.001, 11_000)) == (0, 0)


def test_a_window_of_times_counts_until_its_latest_value_is_old() -> None:
    times = SampledTimes(2, 30_000)
    assert (times.average(0), times.maximum(0)) == (None, None)
    times.record(10, 0)
    times.record(30, 29_999)
    times.record(80, 30_000)
    # Kafka's windows overlap the time that counts: the first one began more than a minute ago.
    assert (times.average(89_998), times.maximum(89_998)) == (40, 80)
    assert (times.average(89_999), times.maximum(89_999)) == (80, 80)
    assert (times.average(90_000), times.maximum(90_000)) == (None, None)


_STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "record", "read"]), _VALUES, _PAUSES_MS), max_size=60)


@given(_STEPS, st.integers(1, 4), st.sampled_from([1.0, 7.0, 500.0, 20_000.0]))
def test_adding_finds_what_all_windows_together_show(
    steps: list[tuple[str, int, int]], samples: int, limit: float
) -> None:
    added, plain = SampledRate(samples, 1000), SampledRate(samples, 1000)
    now_ms = 0
    for kind, value, pause_ms in steps:
        now_ms += pause_ms
        if kind == "add":
            plain.record(value, now_ms)
            assert added.add(value, limit, now_ms) == plain.excess_ms(limit, now_ms)
        elif kind == "record":
            # Data that was counted and not sent is taken back.
            plain.record(-value, now_ms)
            added.record(-value, now_ms)
        else:
            assert added.per_second(now_ms) == plain.per_second(now_ms)
