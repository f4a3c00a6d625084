"""The work of `barnabas simulate`: one seed shown in full, or many seeds searched and the failing ones shortened."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from rich.text import Text

from barnabas.cli import output
from barnabas.cli.simulate_worlds import WorldsFindings
from barnabas.embedded.failures import Failure
from barnabas.simulation.event_coverage import EventCoverage
from barnabas.simulation.facts import DECIDED
from barnabas.simulation.faults import THERE, Fault, FaultEvent, FaultKind, fault_of, fault_spec
from barnabas.simulation.guided_exploration import Guide, explore_guided, is_variation
from barnabas.simulation.operator import AdminOperation
from barnabas.simulation.scenario import (
    Outcome,
    Settings,
    drawn_features,
    drawn_properties,
    run,
    schedule_of,
    struck_clients,
)
from barnabas.simulation.shortening import shorten_outcome
from barnabas.simulation.simulated_cluster import ZOOKEEPER, Layout
from barnabas.simulation.timeline import fold
from barnabas.simulation.timeline_page import page_of
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature
from barnabas.simulation.worlds.small_worlds import WorldKind
from barnabas.simulation.znode_operator import ZnodeEdit

K = TypeVar("K", bound=Enum)

_SHORTENED_MAX = 3
_DEFAULT_FAULTS_S = 60
#: The number of producers and of consumers, and the records per second of each producer.
_DEFAULT_SIZE = (2, 2, None)
_PROBLEMS_SHOWN_MAX = 20
_CLIENTS = ("producer", "consumer", "chain", "kiosk", "member", "modern", "reader", "auditor")
#: With fewer brokers, one power failure breaks guarantees.
_BROKERS_OF_COORDINATORS = 3


def settings_for(
    seed: int,
    faults: str,
    hours: float,
    *,
    brokers: int,
    controllers: int,
    work: str = "records",
    zookeeper: bool = False,
    draws_properties: bool = True,
    ties_faults: bool = True,
    changes: str = "all",
    features: str = "all",
    size: tuple[int, int, float | None] = _DEFAULT_SIZE,
) -> Settings:
    """Returns the settings. Raises Failure if they are invalid."""
    if zookeeper and controllers:
        raise Failure("--controllers: in ZooKeeper mode the brokers are the controllers")
    if zookeeper and work != WorkKind.RECORDS.value:
        raise Failure(
            f"--work {work}: some of its clients use protocols that ZooKeeper mode does not have",
            "the consumer group protocol (KIP-848) and transactions of version 2 (KIP-890) need a metadata quorum",
        )
    layout = Layout(brokers=brokers, controllers=controllers, zookeeper=zookeeper)
    producers, consumers, records_per_s = size
    return Settings(
        seed=seed,
        layout=layout,
        work=_work(work, brokers),
        kinds=_chosen_of("--faults", faults, FaultKind),
        faults_s=max(1, round(hours * 3600)),
        draws_properties=draws_properties,
        ties_faults=ties_faults,
        operations=_chosen_of("--changes", changes, AdminOperation),
        features=_chosen_of("--features", features, WorkFeature),
        edits=() if changes == "none" else tuple(ZnodeEdit),
        producers=producers,
        consumers=consumers,
        records_per_s=records_per_s,
    )


def _work(text: str, brokers: int) -> WorkKind:
    known = [kind.value for kind in WorkKind]
    if text not in known:
        raise Failure(f"--work {text}: no such workload", f"expected one of: {', '.join(known)}")
    if text != WorkKind.RECORDS.value and brokers < _BROKERS_OF_COORDINATORS:
        raise Failure(
            f"--work {text} with {brokers} brokers: one power failure could lose what coordinators have written",
            f"--brokers {_BROKERS_OF_COORDINATORS}",
        )
    return WorkKind(text)


def _chosen_of(option: str, text: str, kinds: type[K]) -> tuple[K, ...]:
    """Returns the members of an enumeration that an option lists."""
    if text == "all":
        return tuple(kinds)
    if text == "none":
        return ()
    known: dict[str, K] = {kind.value: kind for kind in kinds}
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in known:
            raise Failure(f"{option} {name}: no such kind", f"expected one of: all, none, {', '.join(known)}")
    return tuple(known[name] for name in wanted)


def with_faults(settings: Settings, only: str | None, specs: Sequence[str]) -> Settings:
    """Returns the settings with a selection of the seed's faults, or with faults that are given one by one."""
    if only is not None and specs:
        raise Failure("--only selects faults of the seed, and --fault replaces them: use one of them")
    if specs:
        return replace(settings, schedule=tuple(_fault(settings, spec) for spec in specs))
    return settings if only is None else replace(settings, schedule=_chosen(settings, only))


def _fault(settings: Settings, spec: str) -> Fault:
    try:
        fault = fault_of(spec)
    except ValueError:
        kinds = ", ".join(kind.value for kind in FaultKind)
        events = ", ".join(event.value for event in FaultEvent)
        raise Failure(
            f"--fault {spec}: not AT_MS:KIND:NODE[-PEER]:MS[:AMOUNT][@EVENT[:NODE[:OCCURRENCE[:WITHIN_MS]]]]",
            f"kinds: {kinds}\nevents: {events}",
        ) from None
    nodes = [*settings.layout.node_properties(), *([ZOOKEEPER] if settings.layout.zookeeper else [])]
    machines = [*nodes, *struck_clients(settings)]
    node = "" if fault.node == THERE else fault.node
    at = "" if fault.trigger is None else fault.trigger.node
    for name in filter(None, (node, fault.peer, at)):
        if name not in machines:
            raise Failure(f"--fault {spec}: there is no {name}", f"expected one of: {', '.join(machines)}")
    return fault


# -- one seed


def replay(settings: Settings, html: Path | None, history: Path | None, *, shortens: bool, as_json: bool) -> bool:
    """Runs and shows one seed, also as a page if `html` names its file, and as a history if `history` does. With
    `shortens`, a run that fails is replaced by the smallest one that fails alike. Returns whether it failed.
    """
    is_recorded = history is not None and not shortens
    outcome = _recorded(settings, history) if is_recorded else run(settings)
    if shortens and outcome.failed:
        outcome = _shortened(outcome)
    if shortens and history is not None:
        outcome = _recorded(outcome.settings, history)
    if html is not None:
        _write_page(outcome, html)
    if as_json:
        output.show_json(_as_json(outcome))
    else:
        _show_timeline(outcome)
        _show_verdict(outcome)
    return outcome.failed


def _recorded(settings: Settings, file: Path | None) -> Outcome:
    # Without the extra that has numpy, all else works.
    recording = importlib.import_module("barnabas.cli.simulate_history")
    outcome: Outcome = recording.run_recorded(settings, file)
    return outcome


def _chosen(settings: Settings, only: str) -> tuple[Fault, ...]:
    """Returns the chosen faults of the seed's schedule, counted from 1."""
    schedule = schedule_of(settings)
    numbers = [number.strip() for number in only.split(",") if number.strip()]
    if any(not number.isdigit() or not 0 < int(number) <= len(schedule) for number in numbers):
        raise Failure(f"--only {only}: this seed has faults 1 to {len(schedule)}")
    return tuple(schedule[int(number) - 1] for number in numbers)


def _write_page(outcome: Outcome, file: Path) -> None:
    try:
        file.write_text(
            page_of(outcome, list(_summary(outcome)), _again(outcome)),
            encoding="utf-8",
        )
    except OSError as error:
        raise Failure(f"--html {file}: {error.strerror}") from None


def _show_timeline(outcome: Outcome) -> None:
    for line in fold(outcome.notes):
        output.stdout.print(Text(str(line), style=_style(line.note.node, line.note.text)))


def _style(node: str, text: str) -> str:
    if node in ("checker", "run"):
        return "bold red"
    if text.startswith(("fault:", "end of", "all faults end")):
        return "yellow"
    if node == DECIDED:
        return "cyan"
    return "dim" if node.startswith(_CLIENTS) else ""


def _summary(outcome: Outcome) -> Iterator[str]:
    """Yields lines about the run."""
    ratio = outcome.virtual_s / max(outcome.cpu_s, 1e-9)
    yield (
        f"seed {outcome.settings.seed}: {outcome.virtual_s:.0f} s in {outcome.cpu_s:.1f} s "
        f"({ratio:.0f} times real time), {output.counted(outcome.events, 'event')}, trace {outcome.trace_hash}"
    )
    yield (
        f"{output.counted(len(outcome.schedule), 'fault')}, {output.counted(outcome.operated, 'change')} made, "
        f"unclean elections of {output.counted(outcome.unclean, 'partition')}"
    )
    features = drawn_features(outcome.settings)
    if features:
        yield f"features of work: {', '.join(feature.value for feature in WorkFeature if feature in features)}"
    drawn = drawn_properties(outcome.settings)
    if drawn:
        yield f"properties: {', '.join(f'{key}={value}' for key, value in sorted(drawn.items()))}"
    rate = f"{outcome.settings.size.records_per_s:g} a second by each producer"
    yield f"{outcome.sent:,} records sent, {rate}, {outcome.acked:,} acked, {outcome.polled:,} read by consumers"
    happened = sum(1 for times in outcome.rare_events.values() if times)
    yield f"rare events: {happened} of {len(outcome.rare_events)} happened"


def _show_verdict(outcome: Outcome) -> None:
    for line in _summary(outcome):
        output.say(line)
    if outcome.failed:
        for problem in outcome.problems[:_PROBLEMS_SHOWN_MAX]:
            output.show_failure(Failure(problem))
            for note in outcome.courses.get(problem, ()):
                output.say(f"  {note}")
        output.say(f"repeat with: {_again(outcome)}")
    else:
        output.say_done("every guarantee was kept")


def _again(outcome: Outcome) -> str:
    return command_for(outcome.settings, outcome.schedule)


def command_for(settings: Settings, schedule: Sequence[Fault]) -> str:
    """Returns the command that repeats a run with these settings and faults."""
    parts = [f"barnabas simulate --seed {settings.seed}"]
    if settings.faults_s != _DEFAULT_FAULTS_S:
        parts.append(f"--hours {settings.faults_s / 3600:g}")
    if settings.work is not WorkKind.RECORDS:
        parts.append(f"--work {settings.work.value}")
    if settings.layout.brokers != 1:
        parts.append(f"--brokers {settings.layout.brokers}")
    if settings.layout.controllers:
        parts.append(f"--controllers {settings.layout.controllers}")
    if settings.layout.zookeeper:
        parts.append("--zookeeper")
    if not settings.draws_properties:
        parts.append("--kafka-defaults")
    if not settings.ties_faults:
        parts.append("--untied")
    if set(settings.operations) != set(AdminOperation):
        parts.append(f"--changes {','.join(kind.value for kind in settings.operations) or 'none'}")
    if set(settings.features) != set(WorkFeature):
        parts.append(f"--features {','.join(feature.value for feature in settings.features) or 'none'}")
    size = (settings.producers, settings.consumers, settings.records_per_s)
    sizes = zip(("--producers", "--consumers", "--rate"), size, _DEFAULT_SIZE, strict=True)
    parts += [f"{option} {value:g}" for option, value, default in sizes if value is not None and value != default]
    return " ".join([*parts, *_fault_options(settings, tuple(schedule))])


def _fault_options(settings: Settings, schedule: tuple[Fault, ...]) -> list[str]:
    """Returns the command-line options for the faults: those of the seed, a selection of them, or each fault by
    itself.
    """
    whole = schedule_of(replace(settings, schedule=None))
    if schedule and not set(schedule) <= set(whole):
        return [f"--fault {fault_spec(fault)}" for fault in schedule]
    kinds = settings.kinds if schedule else ()
    options = [] if kinds == tuple(FaultKind) else [f"--faults {','.join(kind.value for kind in kinds) or 'none'}"]
    if schedule and schedule != whole:
        options.append(f"--only {','.join(str(whole.index(fault) + 1) for fault in schedule)}")
    return options


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.settings.seed,
        "failed": outcome.failed,
        "problems": outcome.problems,
        "lives": {problem: [str(note) for note in notes] for problem, notes in outcome.courses.items()},
        "properties": drawn_properties(outcome.settings),
        "features": sorted(feature.value for feature in drawn_features(outcome.settings)),
        "faults": [str(fault) for fault in outcome.schedule],
        "trace": outcome.trace_hash,
        "events": outcome.events,
        "virtual_s": outcome.virtual_s,
        "cpu_s": round(outcome.cpu_s, 3),
        "sent": outcome.sent,
        "acked": outcome.acked,
        "polled": outcome.polled,
        "operated": outcome.operated,
        "unclean": outcome.unclean,
        "rare_events": dict(outcome.rare_events),
        "again": _again(outcome),
    }


# -- many seeds


class _Findings:
    """The results of an exploration so far."""

    def __init__(self) -> None:
        self.of_all, self.of_seeds = EventCoverage(), EventCoverage()
        self.seeds = self.variations = 0
        self.virtual_s = 0.0
        #: The name of each failing run, and its outcome.
        self.failures: list[tuple[str, Outcome]] = []

    def add(self, outcome: Outcome) -> None:
        self.virtual_s += outcome.virtual_s
        self.of_all.add(outcome.rare_events)
        name = f"seed {outcome.settings.seed}"
        if is_variation(outcome):
            self.variations += 1
            name = f"a variation of {name}"
        else:
            self.seeds += 1
            self.of_seeds.add(outcome.rare_events)
        if outcome.failed:
            self.failures.append((name, outcome))
            output.say(f"{name} fails: {outcome.problems[0]}")

    def shorten(self) -> None:
        """Shortens the first few failures."""
        self.failures.sort(key=lambda failure: failure[1].settings.seed)
        first = self.failures[:_SHORTENED_MAX]
        self.failures[:_SHORTENED_MAX] = [(name, _shortened(outcome)) for name, outcome in first]

    def events(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields each rare event, how often it happened, and in how many seeds and variations."""
        for name, times, runs in self.of_all.rows():
            in_seeds = self.of_seeds.runs_with(name)
            yield name, times, in_seeds, runs - in_seeds


def explore(
    settings: Settings,
    count: int,
    jobs: int,
    *,
    as_json: bool,
    varies: bool = True,
    kinds: Sequence[WorldKind] = (),
) -> bool:
    """Runs many seeds in separate processes, and seeds of small worlds between them. With `varies`, half of the runs
    are variations of runs that reached something new. Returns whether one failed; the first few failures are shortened.
    """
    found, of_worlds = _Findings(), WorldsFindings()
    with output.progress("runs") as progress:
        task = progress.add_task("exploring", total=count, rate="")
        for outcome in explore_guided(Guide(settings, varies=varies), count, jobs=jobs, kinds=kinds):
            of_worlds.add(outcome)
            if isinstance(outcome, Outcome):
                found.add(outcome)
                progress.update(task, advance=1)
            progress.update(task, rate=f"{len(found.failures) + len(of_worlds.failures)} failed")
    found.shorten()
    of_worlds.shorten()
    if as_json:
        _show_findings_as_json(found, of_worlds)
    else:
        _show_findings(found)
        of_worlds.show()
    runs = output.counted(found.seeds, "seed")
    if found.variations:
        runs += f" and {output.counted(found.variations, 'variation')}"
    verdict = f"{runs}, {found.virtual_s / 3600:.1f} virtual hours: "
    failed = len(found.failures) + len(of_worlds.failures)
    if failed:
        output.say(verdict + f"{failed} failed")
    else:
        output.say_done(verdict + "every guarantee was kept")
    return bool(failed)


def _show_findings(found: _Findings) -> None:
    output.show_table(["rare event", "times", "seeds", "variations"], found.events())
    if found.failures:
        rows = [[name, len(each.schedule), each.problems[0], _again(each)] for name, each in found.failures]
        output.show_table(["run", "faults", "first problem", "again"], rows)


def _show_findings_as_json(found: _Findings, of_worlds: WorldsFindings) -> None:
    output.show_json(
        {
            "seeds": found.seeds,
            "variations": found.variations,
            "failed": [{"run": name, **_as_json(each)} for name, each in found.failures],
            "rare_events": {
                name: {"times": times, "seeds": seeds, "variations": variations}
                for name, times, seeds, variations in found.events()
            },
            **of_worlds.as_json(),
        }
    )


def _shortened(outcome: Outcome) -> Outcome:
    with output.progress("tries") as progress:
        task = progress.add_task(f"shortening seed {outcome.settings.seed}", total=None, rate="")
        return shorten_outcome(outcome, lambda tried: progress.update(task, advance=1, rate=_size_text(tried)))


def _size_text(settings: Settings) -> str:
    faults = output.counted(len(settings.schedule or ()), "fault")
    return f"{faults}, {output.counted(settings.layout.brokers, 'broker')}, {settings.faults_s} s"
