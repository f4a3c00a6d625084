"""Simulated tests of applications: one scenario, many seeds, and for a failure the shortest way to it.

    @simulated(seeds=200, faults="kill,partition,pause")
    async def test_no_order_is_billed_twice(sim: Simulation) -> None:
        await sim.create_topic("orders", 3)
        sim.start("billing", partial(billing.main, sim.bootstrap))
        await sim.inject_faults(60)
        ...

The environment variable BARNABAS_SEED limits a test to one seed, whose time line is printed.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.simulation.application import (
    BROKERS_MAX,
    ApplicationOutcome,
    ApplicationSettings,
    Scenario,
    Simulation,
    fault_kinds,
    run_application,
    shorten_application,
)

__all__ = ["Simulation", "SimulationFailed", "simulate", "simulated"]

_SEED_VARIABLE = "BARNABAS_SEED"
_LINES_MAX = 200


class SimulationFailed(AssertionError):
    """The error for a seed with which a scenario failed. `outcome` has its faults and its time line."""

    def __init__(self, outcome: ApplicationOutcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


def simulate(
    scenario: Scenario,
    *,
    seeds: int = 100,
    first_seed: int = 1,
    faults: str = "kill,partition,pause",
    brokers: int = 3,
    kafka_defaults: bool = False,
    packages: Sequence[str] = (),
) -> None:
    """Runs a scenario with `seeds` seeds. `brokers`: 1 to 5. `kafka_defaults` leaves the brokers' properties at Kafka's
    defaults, which otherwise each seed draws. `packages`: packages besides the scenario's own whose `datetime` is
    virtual.

    Raises SimulationFailed for the first seed that fails, with the fewest faults, and ValueError for wrong arguments.
    """
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"brokers={brokers}: expected 1 to {BROKERS_MAX}")
    settings = ApplicationSettings(
        seed=first_seed,
        brokers=brokers,
        kinds=fault_kinds(faults),
        draws_properties=not kafka_defaults,
        packages=(scenario.__module__.partition(".")[0], *packages),
    )
    single = os.environ.get(_SEED_VARIABLE)
    chosen = [int(single)] if single else range(first_seed, first_seed + seeds)
    for seed in chosen:
        outcome = run_application(scenario, replace(settings, seed=seed))
        if single:
            sys.stdout.writelines(f"{note}\n" for note in outcome.notes)
        if outcome.failed:
            raise _failure(scenario, outcome)


def simulated(
    *,
    seeds: int = 100,
    first_seed: int = 1,
    faults: str = "kill,partition,pause",
    brokers: int = 3,
    kafka_defaults: bool = False,
    packages: Sequence[str] = (),
) -> Callable[[Scenario], Callable[[], None]]:
    """Returns a decorator that turns a scenario into a test without arguments. The options are those of `simulate`."""

    def decorate(scenario: Scenario) -> Callable[[], None]:
        def test() -> None:
            simulate(
                scenario,
                seeds=seeds,
                first_seed=first_seed,
                faults=faults,
                brokers=brokers,
                kafka_defaults=kafka_defaults,
                packages=packages,
            )

        # `__wrapped__` is left out: pytest would take the scenario's argument for a fixture.
        for name in functools.WRAPPER_ASSIGNMENTS:
            setattr(test, name, getattr(scenario, name))
        test.scenario = scenario  # type: ignore[attr-defined]
        return test

    return decorate


def _failure(scenario: Scenario, outcome: ApplicationOutcome) -> SimulationFailed:
    again = run_application(scenario, outcome.settings)
    if again.trace_hash != outcome.trace_hash:
        text = (
            f"seed {outcome.settings.seed}: {outcome.problems[0]}\n"
            "The same seed gave another run: the application depends on something outside of the world, for example on "
            "the order of a set of strings (set PYTHONHASHSEED) or on variables at module level."
        )
        return SimulationFailed(outcome, text)
    best = shorten_application(scenario, outcome)
    seed = outcome.settings.seed
    lines = [str(note) for note in best.notes]
    if len(lines) > _LINES_MAX:
        lines = [f"({len(lines) - _LINES_MAX} lines before)", *lines[-_LINES_MAX:]]
    faults = [f"  {fault}" for fault in best.schedule] or ["  none"]
    text = "\n".join(
        [
            f"seed {seed}: {best.problems[0]}",
            "",
            f"needed faults, {len(best.schedule)} of {len(outcome.schedule)}, with times since the faults began:",
            *faults,
            "",
            "time line:",
            *lines,
            "",
            best.trace,
            f"repeat with: {_SEED_VARIABLE}={seed}",
        ]
    )
    return SimulationFailed(best, text)
