"""Exploration of many seeds in separate processes: a run depends on its settings alone, so it can run in any."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator

from barnabas.simulation.scenario import Outcome, Settings, run


def explore(runs: Iterable[Settings], *, jobs: int) -> Iterator[Outcome]:
    """Yields outcomes in the order of completion. Those of successful runs have no notes."""
    if jobs <= 1:
        yield from map(run_quietly, runs)
        return
    # A fresh interpreter for each job: a fork of a process with threads (a progress bar is one) can hang.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_quietly, runs)


def run_quietly(settings: Settings) -> Outcome:
    """Runs, and drops the notes of a run that kept every guarantee."""
    outcome = run(settings)
    if not outcome.failed:
        outcome.notes = []
    return outcome
