"""Many runs in separate processes: a run depends only on its settings, so it can run in any process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from barnabas.simulation.scenario import Outcome, Settings, run

_Run = TypeVar("_Run")
_Result = TypeVar("_Result")


def explore(runs: Iterable[Settings], *, jobs: int) -> Iterator[Outcome]:
    """Yields outcomes in the order of completion. Those of successful runs have no time line."""
    return in_processes(run_quietly, runs, jobs=jobs)


def in_processes(run_one: Callable[[_Run], _Result], runs: Iterable[_Run], *, jobs: int) -> Iterator[_Result]:
    """Yields results in the order of completion. `run_one` is a function of a module, which other processes import."""
    if jobs <= 1:
        yield from map(run_one, runs)
        return
    # A fresh interpreter for each job: a fork of a process with threads (a progress bar is one) can hang.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_one, runs)


def run_quietly(settings: Settings) -> Outcome:
    """Runs one seed, and drops the time line of a run that kept every guarantee."""
    outcome = run(settings)
    if not outcome.failed:
        outcome.notes = []
    return outcome
