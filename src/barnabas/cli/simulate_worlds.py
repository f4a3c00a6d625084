"""The small worlds of `barnabas simulate`: one seed shown in full, and what an exploration found in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from barnabas.cli import output
from barnabas.embedded.failures import Failure
from barnabas.simulation.event_coverage import EventCoverage
from barnabas.simulation.explore import in_processes
from barnabas.simulation.faults import THERE, Fault, FaultKind, fault_of, fault_spec
from barnabas.simulation.guided_exploration import run_any
from barnabas.simulation.scenario import Outcome
from barnabas.simulation.worlds.small_worlds import (
    MACHINES,
    WorldKind,
    WorldOutcome,
    WorldSettings,
    run_world,
    shorten_world,
)

#: The name of a run of a whole cluster among the worlds.
CLUSTER = "cluster"
_SHORTENED_MAX = 3


def kinds_of(text: str | None, *, explores: bool) -> tuple[bool, list[WorldKind]]:
    """Returns whether whole clusters are among the listed worlds, and which small worlds are. An exploration covers all
    worlds unless some are listed; a single seed runs in one world.
    """
    known = [CLUSTER, *(kind.value for kind in WorldKind)]
    default = known if explores else [CLUSTER]
    names = default if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise Failure(f"--world {name}: no such world", f"expected one of: {', '.join(known)}")
    if len(names) > 1 and not explores:
        raise Failure(f"--world {text}: a single seed runs in one world", "--explore COUNT")
    return CLUSTER in names, [WorldKind(name) for name in names if name != CLUSTER]


def settings_for(kind: WorldKind, seed: int, faults: str, specs: Sequence[str], faults_s: int | None) -> WorldSettings:
    """Returns the settings of one run. Raises Failure if they are invalid."""
    if (faults != "all" or specs or faults_s is not None) and kind not in MACHINES:
        raise Failure(
            f"--world {kind.value}: the seed decides the faults step by step", "omit --faults, --fault and --hours"
        )
    if faults not in ("all", "none"):
        raise Failure(f"--faults {faults}: the seed of a small world decides the kinds", "expected: all or none")
    schedule = tuple(_fault(kind, spec) for spec in specs)
    return WorldSettings(kind, seed, schedule if schedule or faults == "none" else None, faults_s)


def _fault(kind: WorldKind, spec: str) -> Fault:
    try:
        fault = fault_of(spec)
    except ValueError:
        kinds = ", ".join(each.value for each in FaultKind)
        raise Failure(f"--fault {spec}: not AT_MS:KIND:NODE[-PEER]:MS[:AMOUNT]", f"kinds: {kinds}") from None
    node = "" if fault.node == THERE else fault.node
    at = "" if fault.trigger is None else fault.trigger.node
    for name in filter(None, (node, fault.peer, at)):
        if name not in MACHINES[kind]:
            raise Failure(f"--fault {spec}: there is no {name}", f"expected one of: {', '.join(MACHINES[kind])}")
    return fault


def command_for(outcome: WorldOutcome) -> str:
    """Returns the command that repeats a run."""
    settings = outcome.settings
    parts = [f"barnabas simulate --world {settings.kind.value} --seed {settings.seed}"]
    if settings.faults_s is not None:
        parts.append(f"--hours {settings.faults_s / 3600:.7g}")
    if settings.schedule == ():
        parts.append("--faults none")
    return " ".join([*parts, *(f"--fault {fault_spec(fault)}" for fault in settings.schedule or ())])


# -- one seed


def replay(settings: WorldSettings, *, shortens: bool, as_json: bool) -> bool:
    """Runs and shows one seed; with `shortens`, the smallest run that fails alike. Returns whether it failed."""
    outcome = run_world(settings)
    if shortens:
        outcome = _shortened(outcome)
    if as_json:
        output.show_json(_as_json(outcome))
        return outcome.failed
    for line in outcome.timeline:
        output.stdout.print(Text(line))
    happened = sum(1 for times in outcome.rare_events.values() if times)
    output.say(
        f"seed {settings.seed} of {settings.kind.value}: {output.counted(outcome.events, 'event')} in "
        f"{outcome.cpu_s:.1f} s, {output.counted(len(outcome.schedule), 'fault')}, rare events: {happened} of "
        f"{len(outcome.rare_events)} happened"
    )
    if outcome.problem is None:
        output.say_done("every guarantee was kept")
    else:
        output.show_failure(Failure(outcome.problem))
        output.say(f"repeat with: {command_for(outcome)}")
    return outcome.failed


def _shortened(outcome: WorldOutcome) -> WorldOutcome:
    if not outcome.failed:
        return outcome
    name = f"{outcome.settings.kind.value} seed {outcome.settings.seed}"
    with output.progress("tries") as progress:
        task = progress.add_task(f"shortening {name}", total=None, rate="")

        def on_try(tried: WorldSettings) -> None:
            progress.update(task, advance=1, rate=output.counted(len(tried.schedule or ()), "fault"))

        return shorten_world(outcome, on_try)


def _as_json(outcome: WorldOutcome) -> dict[str, object]:
    return {
        "world": outcome.settings.kind.value,
        "seed": outcome.settings.seed,
        "failed": outcome.failed,
        "problem": outcome.problem,
        "faults": [str(fault) for fault in outcome.schedule],
        "events": outcome.events,
        "cpu_s": round(outcome.cpu_s, 3),
        "rare_events": dict(outcome.rare_events),
        "again": command_for(outcome),
    }


# -- many seeds


class WorldFindings:
    """The findings of an exploration in one world so far."""

    def __init__(self) -> None:
        self.runs = self.events = self.combinations = self.failed = 0
        self.cpu_s = 0.0
        self.coverage = EventCoverage()

    def add(self, outcome: Outcome | WorldOutcome) -> None:
        self.runs += 1
        self.events += outcome.events
        self.cpu_s += outcome.cpu_s
        self.failed += outcome.failed
        self.combinations += self.coverage.add(outcome.rare_events)


class WorldsFindings:
    """The findings of an exploration in all worlds so far."""

    def __init__(self) -> None:
        self.by_world: dict[str, WorldFindings] = {}
        self.failures: list[WorldOutcome] = []

    def add(self, outcome: Outcome | WorldOutcome) -> None:
        """Adds a run of a small world, or of a whole cluster, whose failures are kept elsewhere."""
        name = outcome.settings.kind.value if isinstance(outcome, WorldOutcome) else CLUSTER
        self.by_world.setdefault(name, WorldFindings()).add(outcome)
        if isinstance(outcome, WorldOutcome) and outcome.failed:
            self.failures.append(outcome)
            output.say(f"{name} seed {outcome.settings.seed} fails: {outcome.problem}")

    def shorten(self) -> None:
        """Shortens the first few failures."""
        self.failures.sort(key=lambda failure: (failure.settings.kind.value, failure.settings.seed))
        first = self.failures[:_SHORTENED_MAX]
        self.failures[:_SHORTENED_MAX] = [_shortened(outcome) for outcome in first]

    def rows(self) -> Iterator[tuple[str, int, int, int, int, str, int]]:
        """Yields the row of each world in the table of results."""
        for name, found in self.by_world.items():
            cpu = f"{found.cpu_s:.1f}"
            yield name, found.runs, found.events, found.coverage.reached, found.combinations, cpu, found.failed

    def show(self) -> None:
        columns = ["world", "seeds", "events", "rare events", "combinations", "CPU s", "failed"]
        output.show_table(columns, self.rows())
        if self.failures:
            failed = [
                [f"{each.settings.kind.value} seed {each.settings.seed}", len(each.schedule), each.problem]
                for each in self.failures
            ]
            again = [command_for(each) for each in self.failures]
            rows = [[*row, command] for row, command in zip(failed, again, strict=True)]
            output.show_table(["run", "faults", "problem", "again"], rows)

    def as_json(self) -> dict[str, object]:
        return {
            "worlds": {
                name: {
                    "seeds": found.runs,
                    "events": found.events,
                    "rare_events": found.coverage.reached,
                    "combinations": found.combinations,
                    "cpu_s": round(found.cpu_s, 3),
                    "failed": found.failed,
                }
                for name, found in self.by_world.items()
            },
            "failed_in_small_worlds": [_as_json(each) for each in self.failures],
        }


def explore(kinds: Sequence[WorldKind], first_seed: int, count: int, jobs: int, *, as_json: bool) -> bool:
    """Runs `count` seeds of each of these small worlds in processes. Returns whether one failed."""
    found = WorldsFindings()
    runs = (WorldSettings(kind, seed) for seed in range(first_seed, first_seed + count) for kind in kinds)
    with output.progress("runs") as progress:
        task = progress.add_task("exploring", total=count * len(kinds), rate="")
        for outcome in in_processes(run_any, runs, jobs=jobs):
            found.add(outcome)
            progress.update(task, advance=1, rate=f"{len(found.failures)} failed")
    found.shorten()
    if as_json:
        output.show_json(found.as_json())
    else:
        found.show()
    if not found.failures:
        output.say_done(f"{output.counted(count * len(kinds), 'seed')}: every guarantee was kept")
    return bool(found.failures)
