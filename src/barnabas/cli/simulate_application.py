"""The work of `barnabas simulate --app`: seeds of a scenario of an application, and the shortest way to a failure."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import replace

from rich.text import Text

from barnabas.cli import output
from barnabas.embedded.failures import Failure
from barnabas.simulation.application import (
    BROKERS_MAX,
    FAULTS,
    ApplicationOutcome,
    ApplicationSettings,
    Scenario,
    fault_kinds,
    ignore_killed_programs,
    run_application,
    shorten_application,
)
from barnabas.simulation.explore import in_processes
from barnabas.simulation.timeline import fold

_SHORTENED_MAX = 3


def settings_for(app: str, seed: int, faults: str, brokers: int, kafka_defaults: bool) -> ApplicationSettings:
    """Returns the settings. Raises Failure if they are invalid."""
    if brokers > BROKERS_MAX:
        raise Failure(f"--brokers {brokers}: an application runs with 1 to {BROKERS_MAX}")
    try:
        kinds = fault_kinds(faults)
    except ValueError as error:
        raise Failure(f"--faults: {error}") from None
    return ApplicationSettings(
        seed=seed,
        brokers=brokers,
        kinds=kinds,
        draws_properties=not kafka_defaults,
        packages=(app.partition(":")[0].partition(".")[0],),
    )


def scenario_of(app: str) -> Scenario:
    """Returns the scenario with this name, found from the working directory. Raises Failure."""
    module_name, _, function_name = app.partition(":")
    if not module_name or not function_name:
        raise Failure(f"--app {app}: expected MODULE:FUNCTION")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise Failure(f"--app {app}: the module cannot be imported: {error}") from None
    found = getattr(module, function_name, None)
    # A test that `simulated` has made of a scenario.
    found = getattr(found, "scenario", found)
    if not inspect.iscoroutinefunction(found):
        raise Failure(f"--app {app}: {function_name} is not a coroutine function of {module_name}")
    scenario: Scenario = found
    return scenario


def run(app: str, settings: ApplicationSettings, count: int | None, jobs: int, *, as_json: bool) -> bool:
    """Runs one seed, or `count` of them, and shows the result. Returns whether one failed."""
    scenario = scenario_of(app)
    ignore_killed_programs()
    if count is None:
        outcome = run_application(scenario, settings)
        if as_json:
            output.show_json(_as_json(app, outcome))
        else:
            _show(app, outcome)
        return outcome.failed
    failures: list[ApplicationOutcome] = []
    with output.progress("seeds") as progress:
        task = progress.add_task("exploring", total=count, rate="")
        runs = ((app, replace(settings, seed=seed)) for seed in range(settings.seed, settings.seed + count))
        for outcome in in_processes(_run_one, runs, jobs=jobs):
            progress.update(task, advance=1, rate=f"{len(failures)} failed" if failures else "")
            if outcome.failed:
                failures.append(outcome)
    failures.sort(key=lambda outcome: outcome.settings.seed)
    short = [
        shorten_application(scenario, outcome) if number < _SHORTENED_MAX else outcome
        for number, outcome in enumerate(failures)
    ]
    if as_json:
        output.show_json({"seeds": count, "failures": [_as_json(app, outcome) for outcome in short]})
        return bool(failures)
    for outcome in short:
        output.show_failure(Failure(f"seed {outcome.settings.seed}: {outcome.problems[0]}"))
        for fault in outcome.schedule:
            print(f"  {fault}")
        output.say(f"repeat with: {_command(app, outcome.settings)}")
    verdict = f"{output.counted(count, 'seed')}: "
    if failures:
        output.say(verdict + f"{len(failures)} failed")
    else:
        output.say_done(verdict + "the scenario held")
    return bool(failures)


def _run_one(work: tuple[str, ApplicationSettings]) -> ApplicationOutcome:
    app, settings = work
    ignore_killed_programs()
    outcome = run_application(scenario_of(app), settings)
    if not outcome.failed:
        outcome.notes = []
    return outcome


def _command(app: str, settings: ApplicationSettings) -> str:
    parts = [f"barnabas simulate --app {app} --seed {settings.seed} --brokers {settings.brokers}"]
    names = [name for name, kinds in FAULTS.items() if set(kinds) <= set(settings.kinds)]
    if len(names) < len(FAULTS):
        parts.append(f"--faults {','.join(names) or 'none'}")
    if not settings.draws_properties:
        parts.append("--kafka-defaults")
    return " ".join(parts)


def _show(app: str, outcome: ApplicationOutcome) -> None:
    for line in fold(outcome.notes):
        is_fault = line.note.text.startswith(("fault:", "end of"))
        output.stdout.print(Text(str(line), style="yellow" if is_fault else ""))
    ratio = outcome.virtual_s / max(outcome.cpu_s, 1e-9)
    output.say(
        f"seed {outcome.settings.seed}: {outcome.virtual_s:.0f} s in {outcome.cpu_s:.1f} s ({ratio:.0f} times real "
        f"time), {output.counted(len(outcome.schedule), 'fault')}, trace {outcome.trace_hash}"
    )
    if outcome.failed:
        print(outcome.trace)
        output.show_failure(Failure(outcome.problems[0]))
        output.say(f"repeat with: {_command(app, outcome.settings)}")
    else:
        output.say_done("the scenario held")


def _as_json(app: str, outcome: ApplicationOutcome) -> dict[str, object]:
    return {
        "seed": outcome.settings.seed,
        "failed": outcome.failed,
        "problems": outcome.problems,
        "faults": [str(fault) for fault in outcome.schedule],
        "trace": outcome.trace_hash,
        "virtual_s": outcome.virtual_s,
        "cpu_s": round(outcome.cpu_s, 3),
        "again": _command(app, outcome.settings),
    }
