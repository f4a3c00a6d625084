"""`barnabas history`: records a cluster into a file, shows what changed, and the state at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli import history_export, output
from barnabas.cli.local_cluster import interruptible
from barnabas.cli.monitor import (
    Controllers,
    ControllersProperty,
    addresses,
    clock_ms,
    cluster_feeds,
    print_table_json,
    show_table,
)
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, Bootstrap, ClientProperty, Json
from barnabas.embedded.failures import Failure
from barnabas.embedded.signals import until_signalled
from barnabas.history.errors import HistoryError
from barnabas.history.past_table import PastTable
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.history.retention import Bounds
from barnabas.monitor.changes import Change
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.folded_changes import change_lines
from barnabas.monitor.texts import at
from barnabas.monitor.watch import watch

app = typer.Typer(no_args_is_help=True, help="Record the states of a cluster in one file, and show any moment of it")

HistoryFile = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `history record` wrote")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only changes from this time on")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only changes up to this time")]
Moment = Annotated[
    str, typer.Argument(metavar="TIME", help="12:03:10, 2026-11-26T12:03:10 (UTC), milliseconds, or 10m before the end")
]


@app.command()
def record(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; an existing one is continued")],
    days: Annotated[float, typer.Option(help="Number of days to keep", min=0.01)] = 7.0,
    megabytes: Annotated[int, typer.Option(help="Keep the file below this size, in MB", min=1)] = 1_000,
    interval: Annotated[float, typer.Option(help="Seconds between two requests", min=0.1, max=3600)] = 1.0,
    controllers: Controllers = None,
    controller_properties: ControllersProperty = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Record every change of a cluster until Ctrl-C

    The command works with any Kafka cluster, and sees what `barnabas monitor` sees. A clean stop leaves a
    single file, which can be copied and opened anywhere.
    """
    options = FeedOptions(interval_s=interval, wants_all_volumes=False, controllers=addresses(controllers or ""))
    feeds = cluster_feeds(bootstrap, properties or [], controller_properties or [], options)
    bounds = Bounds(days, megabytes * 1_000_000)
    with interruptible():
        if asyncio.run(until_signalled(_record(feeds, file, bounds, interval))):
            raise KeyboardInterrupt


async def _record(feeds: ClusterFeeds, file: Path, bounds: Bounds, interval_s: float) -> None:
    recorder: Recorder | None = None
    try:
        async with aclosing(watch(feeds, interval_s=interval_s, clock_ms=clock_ms, packs=True)) as steps:
            problem: str | None = None
            async for step in steps:
                if step.problem != problem:
                    problem = step.problem
                    output.say(f"no broker answers: {problem}" if problem else "a broker answers again")
                if recorder is None and step.table is not None:
                    recorder = _recorder(file, feeds, bounds)
                    output.say(f"recording {output.counted(len(step.table), 'partition')} into {file}")
                if recorder is not None:
                    recorder.explain(step.changes, step.packed)
                    recorder.tick(clock_ms())
                    if recorder.problem is not None:
                        raise Failure(recorder.problem)
    finally:
        if recorder is not None:
            recorder.close(clock_ms())


def _recorder(file: Path, feeds: ClusterFeeds, bounds: Bounds) -> Recorder:
    try:
        return Recorder(file, feeds.table, bounds=bounds)
    except HistoryError as error:
        raise Failure(str(error)) from None


@app.command()
def show(
    file: HistoryFile,
    subject: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC[-PARTITION]]", help="The changes of a topic, or of one partition (orders-3)"),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, max=INT32_MAX, help="Only changes of this broker")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="How many of the latest changes to show", min=1)] = 200,
    as_json: Json = False,
) -> None:
    """Show what changed and when, with causes; without a topic, first how much is recorded"""
    with opened(file) as history:
        since_ms, until_ms = _period(history, since, until)
        topic, partition = _subject(history, subject)
        if topic is not None and partition is not None:
            changes = [
                change
                for change in history.partition(topic, partition)
                if since_ms <= change.time_ms <= until_ms or change.kind == "begin"
            ][-limit:]
        else:
            changes = history.events(since_ms, until_ms, limit, topic=topic, broker=broker, newest=True)
        if as_json:
            output.show_json(_as_json(history, changes))
            return
        if subject is None:
            _show_summary(history)
        for line in change_lines(changes):
            print(line.text)
        if not changes:
            output.say("nothing changed")


def _subject(history: History, subject: str | None) -> tuple[str | None, int | None]:
    """Returns the topic and the partition of a name. A topic can itself be named `orders-3`."""
    if subject is None:
        return None, None
    topics = history.topics()
    topic, dash, number = subject.rpartition("-")
    if subject in topics:
        partitions = history.partitions(subject)
        return subject, partitions[0] if len(partitions) == 1 else None
    if dash and number.isdigit() and topic in topics:
        return topic, int(number)
    raise Failure(f"there was no topic {subject} in {history.path}")


def _period(history: History, since: str | None, until: str | None) -> tuple[int, int]:
    first_ms, last_ms = history.span()
    since_ms = first_ms if since is None else history.time_of(since)
    return since_ms, last_ms if until is None else history.time_of(until)


def _show_summary(history: History) -> None:
    first_ms, last_ms = history.span()
    print(f"cluster {history.cluster_id} | {at(first_ms)} to {at(last_ms)} | {len(history.at(last_ms))} partitions")
    for gap in history.gaps():
        print(f"gap: {gap}")


def _as_json(history: History, changes: list[Change]) -> dict[str, object]:
    first_ms, last_ms = history.span()
    return {
        "cluster_id": history.cluster_id,
        "first": at(first_ms),
        "last": at(last_ms),
        "problem": history.problem,
        "gaps": [
            {"begin": at(gap.begin_ms), "end": None if gap.end_ms is None else at(gap.end_ms), "reason": gap.reason}
            for gap in history.gaps()
        ],
        "changes": [change.to_json() for change in changes],
    }


@app.command("at")
def show_moment(
    file: HistoryFile,
    time: Moment,
    every: Annotated[bool, typer.Option("--all", help="Include partitions of internal topics in sync")] = False,
    as_json: Json = False,
) -> None:
    """Show the partitions as they were at a time, as `barnabas monitor --once` does"""
    with opened(file) as history:
        show_past(history.at(time), every=every, as_json=as_json)


@app.command()
def export(
    file: HistoryFile,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV: a header line, then one line for each change")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="JSON lines: one for each change")] = False,
    since: Since = None,
    until: Until = None,
) -> None:
    """Write all changes to standard output"""
    if as_csv == as_jsonl:
        raise Failure("choose --csv or --jsonl")
    with opened(file) as history:
        changes = history.all_events(*_period(history, since, until))
        for piece in history_export.csv_lines(changes) if as_csv else history_export.json_lines(changes):
            output.write(piece)


@contextmanager
def opened(file: Path) -> Iterator[History]:
    """Opens a history. A damaged file is reported in one line, and so is a missing end."""
    try:
        with History.open(file) as history:
            if history.problem is not None:
                output.say(f"{file}: {history.problem}")
            yield history
    except HistoryError as error:
        raise Failure(str(error)) from None


def show_past(table: PastTable, *, every: bool, as_json: bool) -> None:
    """Prints one moment."""
    if as_json:
        print_table_json(table)
        return
    print(f"at {at(table.asked_ms)}; the last change was at {at(table.time_ms)}")
    if table.gap is not None:
        print(f"nothing was recorded at this time ({table.gap}); this is the last state before it")
    show_table(table, every=every)
