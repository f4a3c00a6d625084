"""Exploration that is guided by what runs reach: half of the runs are plain seeds, the other half are variations.

A run that reaches a new combination of rare events is kept. The next variation starts from a kept run with an event
that few runs had. A variation is known by its settings, which contain its schedule: it can be repeated without the
others.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from barnabas.simulation.event_coverage import EventCoverage
from barnabas.simulation.explore import run_quietly
from barnabas.simulation.scenario import Outcome, Settings
from barnabas.simulation.variations import varied
from barnabas.simulation.worlds.small_worlds import WorldKind, WorldOutcome, WorldSettings, run_world

#: World -> (n, m): after every m-th run of a whole cluster, n seeds of this world are run.
_SEEDS_PER_RUN: Final = {
    WorldKind.REPLICATION: (3, 1),
    WorldKind.QUORUM: (6, 1),
    WorldKind.ZOOKEEPER: (1, 1),
    WorldKind.TRANSACTIONS: (1, 2),
    WorldKind.SECURITY: (1, 2),
}


class _Kept(NamedTuple):
    settings: Settings
    happened: frozenset[str]


class Guide:
    """The choice of the next run, given the outcomes so far."""

    def __init__(self, settings: Settings, *, varies: bool = True) -> None:
        """Begins with the seed of these settings. Without `varies`, or without faults, all runs are plain seeds."""
        self._settings = settings
        self.first_seed = settings.seed
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


def choices(guide: Guide, count: int, kinds: Sequence[WorldKind]) -> Iterator[Settings | WorldSettings]:
    """Yields the settings of `count` runs of whole clusters, and between them seeds of these small worlds, which get
    about half of the CPU time.
    """
    seeds = dict.fromkeys(kinds, guide.first_seed)
    for number in range(count):
        yield guide.next()
        for kind in kinds:
            times, every = _SEEDS_PER_RUN[kind]
            for _ in range(times if number % every == 0 else 0):
                yield WorldSettings(kind, seeds[kind])
                seeds[kind] += 1


def run_any(settings: Settings | WorldSettings) -> Outcome | WorldOutcome:
    """Runs a whole cluster or a small world; runs that kept every guarantee have no time line."""
    if isinstance(settings, Settings):
        return run_quietly(settings)
    outcome = run_world(settings)
    if not outcome.failed:
        outcome.timeline = []
    return outcome


def explore_guided(
    guide: Guide, count: int, *, jobs: int, kinds: Sequence[WorldKind] = ()
) -> Iterator[Outcome | WorldOutcome]:
    """Yields the outcomes of `count` runs of whole clusters, and of seeds of small worlds between them, in the order of
    completion.
    """
    chosen = choices(guide, count, kinds)
    if jobs <= 1:
        for settings in chosen:
            outcome = run_any(settings)
            _add(guide, outcome)
            yield outcome
        return
    # A fresh interpreter for each job: a fork of a process with threads (a progress bar is one) can hang.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Outcome | WorldOutcome]] = set()
        while True:
            running.update(pool.submit(run_any, settings) for settings in islice(chosen, jobs - len(running)))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _add(guide, future.result())
                yield future.result()


def _add(guide: Guide, outcome: Outcome | WorldOutcome) -> None:
    if isinstance(outcome, Outcome):
        guide.add(outcome)
