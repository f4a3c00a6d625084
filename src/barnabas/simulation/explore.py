"""Exploration of many seeds in separate processes, and reduction of a failing run to the fewest faults.

A run depends on its settings alone, so it can run in any process. The reduction is delta debugging (Zeller's ddmin): it
leaves out parts of the schedule, large ones first, as long as the same property is violated.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from barnabas.simulation.faults import Fault
from barnabas.simulation.scenario import Outcome, Settings, run

T = TypeVar("T")


def explore(runs: Iterable[Settings], *, jobs: int) -> Iterator[Outcome]:
    """Yields outcomes in the order of completion. Those of successful runs have no notes."""
    if jobs <= 1:
        yield from map(_run_quietly, runs)
        return
    # A fresh interpreter for each job: a fork of a process with threads (a progress bar is one) can hang.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_run_quietly, runs)


def _run_quietly(settings: Settings) -> Outcome:
    outcome = run(settings)
    if not outcome.failed:
        outcome.notes = []
    return outcome


def kind_of(problem: str) -> str:
    """Returns the kind of violated property: the text before the first colon, without numbers and names."""
    return problem.partition(":")[0]


def shorten_outcome(outcome: Outcome, on_try: Callable[[int], None] | None = None) -> Outcome:
    """Returns the outcome of the same seed with the fewest faults that still violate the same kind of property.

    `on_try` gets the number of faults of each attempt.
    """
    wanted = kind_of(outcome.problems[0])
    best = outcome

    def still_fails(schedule: Sequence[Fault]) -> bool:
        nonlocal best
        if on_try is not None:
            on_try(len(schedule))
        attempt = run(replace(outcome.settings, schedule=tuple(schedule)))
        if any(kind_of(problem) == wanted for problem in attempt.problems):
            best = attempt
            return True
        return False

    shorten(outcome.schedule, still_fails)
    return best


def shorten(items: Sequence[T], still_fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns a subsequence that still fails, from which no single item can be left out. `items` itself must fail."""
    kept = list(items)
    parts = 2
    if kept and still_fails([]):
        return []
    while len(kept) > 1:
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if still_fails(fewer):
                kept = fewer
                parts = max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return kept
