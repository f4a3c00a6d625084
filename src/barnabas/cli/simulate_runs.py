"""The work of `barnabas simulate`: one seed shown in full, or many seeds searched and the failing ones shortened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.text import Text

from barnabas.cli import output
from barnabas.embedded.failures import Failure
from barnabas.simulation.explore import explore as explore_seeds
from barnabas.simulation.explore import shorten_outcome
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.scenario import Outcome, Settings, drawn_properties, run, schedule_of
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind

_SHORTENED_MAX = 3
_DEFAULT_FAULTS_S = 60
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
) -> Settings:
    """Returns the settings. Raises Failure if they are invalid."""
    if zookeeper and controllers:
        raise Failure("--controllers: in ZooKeeper mode the brokers are the controllers")
    layout = Layout(brokers=brokers, controllers=controllers, zookeeper=zookeeper)
    faults_s = max(1, round(hours * 3600))
    return Settings(
        seed=seed,
        layout=layout,
        work=_work(work, brokers),
        kinds=_kinds(faults),
        faults_s=faults_s,
        draws_properties=draws_properties,
    )


def _work(text: str, brokers: int) -> WorkKind:
    known = [kind.value for kind in WorkKind]
    if text not in known:
        raise Failure(f"--work {text}: no such workload", f"expected one of: {', '.join(known)}")
    if text != WorkKind.RECORDS.value and brokers < _BROKERS_OF_COORDINATORS:
        raise Failure(
            f"--work {text} with {brokers} brokers: nothing syncs what coordinators write",
            f"--brokers {_BROKERS_OF_COORDINATORS}",
        )
    return WorkKind(text)


def _kinds(text: str) -> tuple[FaultKind, ...]:
    if text == "all":
        return tuple(FaultKind)
    if text == "none":
        return ()
    known = {kind.value: kind for kind in FaultKind}
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in known:
            raise Failure(f"--faults {name}: no such kind", f"expected one of: all, none, {', '.join(known)}")
    return tuple(known[name] for name in wanted)


# -- one seed


def replay(settings: Settings, only: str | None, *, as_json: bool) -> bool:
    """Runs and shows one seed. Returns whether it failed."""
    if only is not None:
        settings = replace(settings, schedule=_chosen(settings, only))
    outcome = run(settings)
    if as_json:
        output.show_json(_as_json(outcome))
    else:
        _show_timeline(outcome)
        _show_verdict(outcome)
    return outcome.failed


def _chosen(settings: Settings, only: str) -> tuple[Fault, ...]:
    """Returns the chosen faults of the seed's schedule, counted from 1."""
    schedule = schedule_of(settings)
    numbers = [number.strip() for number in only.split(",") if number.strip()]
    if any(not number.isdigit() or not 0 < int(number) <= len(schedule) for number in numbers):
        raise Failure(f"--only {only}: this seed has faults 1 to {len(schedule)}")
    return tuple(schedule[int(number) - 1] for number in numbers)


def _show_timeline(outcome: Outcome) -> None:
    for note in outcome.notes:
        output.stdout.print(Text(str(note), style=_style(note.node, note.text)))


def _style(node: str, text: str) -> str:
    if node in ("checker", "run"):
        return "bold red"
    if text.startswith(("fault:", "end of", "all faults end")):
        return "yellow"
    return "dim" if node.startswith(_CLIENTS) else ""


def _show_verdict(outcome: Outcome) -> None:
    ratio = outcome.virtual_s / max(outcome.cpu_s, 1e-9)
    output.say(
        f"seed {outcome.settings.seed}: {outcome.virtual_s:.0f} s in {outcome.cpu_s:.1f} s "
        f"({ratio:.0f} times real time), {output.counted(outcome.events, 'event')}, trace {outcome.trace_hash}"
    )
    output.say(
        f"{output.counted(len(outcome.schedule), 'fault')}, {output.counted(outcome.operated, 'change')} made, "
        f"unclean elections of {output.counted(outcome.unclean, 'partition')}"
    )
    drawn = drawn_properties(outcome.settings)
    if drawn:
        output.say(f"properties: {', '.join(f'{key}={value}' for key, value in sorted(drawn.items()))}")
    output.say(f"{outcome.sent:,} records sent, {outcome.acked:,} acked, {outcome.polled:,} read by consumers")
    if outcome.failed:
        for problem in outcome.problems[:_PROBLEMS_SHOWN_MAX]:
            output.show_failure(Failure(problem))
        output.say(f"repeat with: {command_for(outcome)}")
    else:
        output.say_done("every guarantee was kept")


def command_for(outcome: Outcome) -> str:
    """Returns the command that repeats this run."""
    settings = outcome.settings
    parts = [f"barnabas simulate --seed {settings.seed}"]
    if settings.kinds != tuple(FaultKind):
        parts.append(f"--faults {','.join(kind.value for kind in settings.kinds) or 'none'}")
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
    if settings.schedule is not None:
        whole = schedule_of(replace(settings, schedule=None))
        parts.append(f"--only {','.join(str(whole.index(fault) + 1) for fault in outcome.schedule)}")
    return " ".join(parts)


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.settings.seed,
        "failed": outcome.failed,
        "problems": outcome.problems,
        "properties": drawn_properties(outcome.settings),
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
        "again": command_for(outcome),
    }


# -- many seeds


def explore(settings: Settings, count: int, jobs: int, *, as_json: bool) -> bool:
    """Runs many seeds in processes. Returns whether one failed; the first few failures are shortened."""
    failures: list[Outcome] = []
    done = virtual_s = 0.0
    with output.progress("seeds") as progress:
        task = progress.add_task("exploring", total=count, rate="")
        for outcome in explore_seeds(_seeds(settings, count), jobs=jobs):
            done += 1
            virtual_s += outcome.virtual_s
            if outcome.failed:
                failures.append(outcome)
                output.say(f"seed {outcome.settings.seed} fails: {outcome.problems[0]}")
            progress.update(task, advance=1, rate=f"{len(failures)} failed")
    failures.sort(key=lambda outcome: outcome.settings.seed)
    failures[:_SHORTENED_MAX] = [_shortened(outcome) for outcome in failures[:_SHORTENED_MAX]]
    if as_json:
        output.show_json({"seeds": count, "failed": [_as_json(each) for each in failures]})
    elif failures:
        rows = [[each.settings.seed, len(each.schedule), each.problems[0], command_for(each)] for each in failures]
        output.show_table(["seed", "faults", "first problem", "again"], rows)
    verdict = f"{output.counted(count, 'seed')}, {virtual_s / 3600:.1f} virtual hours: "
    if failures:
        output.say(verdict + f"{len(failures)} failed")
    else:
        output.say_done(verdict + "every guarantee was kept")
    return bool(failures)


def _seeds(settings: Settings, count: int) -> Iterator[Settings]:
    return (replace(settings, seed=seed) for seed in range(settings.seed, settings.seed + count))


def _shortened(outcome: Outcome) -> Outcome:
    with output.progress("tries") as progress:
        task = progress.add_task(f"shortening seed {outcome.settings.seed}", total=None, rate="")
        return shorten_outcome(
            outcome, lambda faults: progress.update(task, advance=1, rate=output.counted(faults, "fault"))
        )
