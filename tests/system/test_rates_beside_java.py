"""Rates and token buckets of quotas compared with Kafka's own classes: the same values, the same throttle times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import kafka_jars
from barnabas.common.sampled_rates import SampledRate, TokenBucket

SOURCE: Final = Path(__file__).resolve().parents[1] / "clients" / "java" / "Rates.java"
CASES: Final = 250
STEPS: Final = 40
#: A bucket of Kafka is empty at time 0; at this one it is full.
BEGIN_MS: Final = 1_000_000_000


class Case(NamedTuple):
    """A quota, and the times at which values are recorded."""

    samples: int
    window_ms: int
    bound: float
    steps: tuple[tuple[int, float], ...]


class Outcome(NamedTuple):
    throttle_ms: int
    measured: float


def cases(seed: int) -> list[Case]:
    """Returns quotas that the values stay below, exceed a little, and exceed by far; with pauses."""
    chance, found = random.Random(seed), []
    for _ in range(CASES):
        samples, window_ms = chance.choice((1, 2, 3, 11)), chance.choice((500, 1_000, 5_000))
        bound = chance.choice((0.5, 3.0, 100.0, 1e6)) * chance.uniform(0.5, 2)
        now_ms, steps = BEGIN_MS, []
        for _ in range(STEPS):
            now_ms += chance.choice((0, 1, window_ms // 10, window_ms - 1, window_ms, samples * window_ms))
            steps.append((now_ms, bound * chance.choice((0, 0.01, 0.3, 1, 4)) * chance.random()))
        found.append(Case(samples, window_ms, bound, tuple(steps)))
    return found


def asked_of_java(kind: str, asked: list[Case]) -> Iterator[Outcome]:
    lines: list[str] = []
    for case in asked:
        lines.append(f"{kind} {case.samples} {case.window_ms} {case.bound!r}")
        lines += (f"{now_ms} {value!r}" for now_ms, value in case.steps)
    done = kafka_jars.run_tool(str(SOURCE), stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        throttle_ms, measured = line.split()
        yield Outcome(int(throttle_ms), float(measured))


def of_rates(case: Case) -> Iterator[Outcome]:
    rate = SampledRate(case.samples, case.window_ms)
    for now_ms, value in case.steps:
        rate.record(value, now_ms)
        yield Outcome(rate.excess_ms(case.bound, now_ms), rate.per_second(now_ms))


def of_tokens(case: Case) -> Iterator[Outcome]:
    bucket = TokenBucket(case.bound, case.samples * case.window_ms / 1000, 0)
    for now_ms, value in case.steps:
        bucket.take(value, now_ms)
        yield Outcome(bucket.missing_ms(now_ms), bucket.tokens(now_ms))


@pytest.mark.parametrize(("kind", "ours"), [("rate", of_rates), ("tokens", of_tokens)])
def test_values_and_throttle_times_are_those_of_kafkas_classes(kind: str, ours: object) -> None:
    assert callable(ours)
    asked = cases(29)
    kafkas = list(asked_of_java(kind, asked))
    found = [(case, outcome) for case in asked for outcome in ours(case)]
    assert len(found) == len(kafkas) == CASES * STEPS
    differing = [
        (case, outcome, theirs)
        for (case, outcome), theirs in zip(found, kafkas, strict=True)
        if outcome.throttle_ms != theirs.throttle_ms
        or outcome.measured != pytest.approx(theirs.measured, rel=1e-12, abs=1e-9)
    ]
    assert differing[:2] == []
    assert 0.2 < sum(theirs.throttle_ms > 0 for theirs in kafkas) / len(kafkas) < 0.9
