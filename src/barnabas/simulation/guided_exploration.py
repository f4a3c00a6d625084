"""Exploration that is guided by what runs reach: half of the runs are plain seeds, the other half are variations.

A run that reaches a new combination of rare events is kept. The next variation starts from a kept run with an event
that few runs had. A variation is known by its settings, which contain its schedule: it can be repeated without the
others.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from random import Random
from typing import NamedTuple

from barnabas.simulation.event_coverage import EventCoverage
from barnabas.simulation.explore import run_quietly
from barnabas.simulation.scenario import Outcome, Settings
from barnabas.simulation.variations import varied


class _Kept(NamedTuple):
    settings: Settings
    happened: frozenset[str]


class Guide:
    """The choice of the next run, given the outcomes so far."""

    def __init__(self, settings: Settings, *, varies: bool = True) -> None:
        """Begins with the seed of these settings. Without `varies`, or without faults, all runs are plain seeds."""
        self._settings = settings
        self._varies = varies and bool(settings.kinds)
        self._random = Random(settings.seed)
        self._next_seed = settings.seed
        self._kept: list[_Kept] = []
        self._is_variation_next = False
        self._coverage = EventCoverage()

    def next(self) -> Settings:
        """Returns the settings of the next run: a seed and a variation in turns, as soon as there is a run to vary."""
        is_variation = self._is_variation_next and bool(self._kept)
        self._is_variation_next = self._varies and not is_variation
        if is_variation:
            return varied(self._chosen().settings, self._random)
        settings = replace(self._settings, seed=self._next_seed)
        self._next_seed += 1
        return settings

    def add(self, outcome: Outcome) -> None:
        """Records an outcome, and keeps its run if that reached a new combination and kept every guarantee."""
        if self._coverage.add(outcome.rare_events) and not outcome.failed:
            happened = frozenset(name for name, times in outcome.rare_events.items() if times)
            self._kept.append(_Kept(outcome.settings, happened))

    def _chosen(self) -> _Kept:
        """Returns a kept run with an event that is chosen by its rarity."""
        found = frozenset[str]().union(*(kept.happened for kept in self._kept))
        rows = [row for row in self._coverage.rows() if row.name in found]
        (row,) = self._random.choices(rows, [1 / row.runs for row in rows])
        return self._random.choice([kept for kept in self._kept if row.name in kept.happened])


def is_variation(outcome: Outcome) -> bool:
    """Returns whether the run of an exploration was a variation, and not a plain seed."""
    return outcome.settings.schedule is not None


def explore_guided(guide: Guide, count: int, *, jobs: int) -> Iterator[Outcome]:
    """Yields the outcomes of `count` runs in the order of completion. Those of successful runs have no notes."""
    if jobs <= 1:
        for _ in range(count):
            outcome = run_quietly(guide.next())
            guide.add(outcome)
            yield outcome
        return
    # A fresh interpreter for each job: a fork of a process with threads (a progress bar is one) can hang.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Outcome]] = set()
        left = count
        while running or left:
            while left and len(running) < jobs:
                running.add(pool.submit(run_quietly, guide.next()))
                left -= 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                guide.add(future.result())
                yield future.result()
