"""`barnabas monitor`: shows the replicas of a cluster live, as lines, or once with a verdict as the exit code."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import typer

from barnabas.cli import output
from barnabas.cli.clients import address, check_reachable
from barnabas.cli.contexts import choice
from barnabas.cli.local_cluster import interruptible
from barnabas.cli.monitor_view import LiveView
from barnabas.cli.options import DEFAULT_BOOTSTRAP, At, Bootstrap, ClientProperty, HistoryOption, key_values
from barnabas.embedded.failures import Failure
from barnabas.embedded.signals import until_signalled
from barnabas.monitor import lines
from barnabas.monitor.broker_connection import Address, Security
from barnabas.monitor.changes import Change
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.connections import Unreachable
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.folded_changes import change_lines
from barnabas.monitor.metrics_server import MetricsServer
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.table_json import json_pieces
from barnabas.monitor.watch import Step, watch

Controllers = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,...",
        help="Also read the metadata log from these controllers, for every change of any KRaft cluster as it is "
        "decided. The user needs ClusterAction",
    ),
]
ControllersProperty = Annotated[
    list[str] | None,
    typer.Option("--controllers-property", metavar="KEY=VALUE", help="Like --property, for --controllers"),
]


def monitor(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Only this topic; default: all")] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Like --once, but exit with 6 if a partition is offline, 5 under min ISR, 4 at min ISR, "
            "3 under-replicated, 1 if no broker answers",
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="In a plain table, include partitions of internal topics that are in sync")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line for the first state and one for each change")
    ] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two requests", min=0.1, max=3600)] = 1.0,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Also serve metrics of every partition to Prometheus at this address"),
    ] = None,
    controllers: Controllers = None,
    controller_properties: ControllersProperty = None,
    at: At = None,
    history: HistoryOption = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show leader, replicas, ISR and lag of each partition, and each change with its time and cause

    The command works with any Kafka cluster. Causes are shown if the cluster has a journal (`barnabas explain`). If no
    broker answers, it reports that and waits.
    """
    if at is not None or history is not None:
        views = importlib.import_module("barnabas.cli.history_views")
        exit_code = views.monitor_at(at, history, topic, every=every or topic is not None, as_json=as_json)
        raise typer.Exit(exit_code if check else 0)
    options = FeedOptions(
        topic=topic,
        interval_s=interval,
        wants_offsets=metrics is not None,
        wants_all_volumes=once or check or as_json,
        controllers=addresses(controllers or ""),
    )
    feeds = cluster_feeds(bootstrap, properties or [], controller_properties or [], options)
    every = every or topic is not None
    with interruptible():
        if once or check:
            check_reachable(bootstrap, key_values(properties or [], "--property"))
            asyncio.run(_look_once(feeds, topic))
            if as_json:
                print_table_json(feeds.table)
            else:
                show_table(feeds.table, every=every)
            if check:
                raise typer.Exit(lines.EXIT_CODES[feeds.table.severity])
        elif asyncio.run(until_signalled(_watch(feeds, options, metrics, as_json, every=every))):
            raise KeyboardInterrupt


def cluster_feeds(
    bootstrap: str, properties: list[str], of_controllers: list[str], options: FeedOptions
) -> ClusterFeeds:
    try:
        security = Security.from_properties(key_values(properties, "--property"))
        controllers_security = (
            Security.from_properties(key_values(of_controllers, "--controllers-property"))
            if of_controllers
            else security
        )
    except (ValueError, OSError) as error:
        raise Failure(str(error)) from error
    return ClusterFeeds(
        addresses(bootstrap), security, options, clock_ms=clock_ms, controllers_security=controllers_security
    )


def addresses(text: str) -> tuple[Address, ...]:
    return tuple(address(each.strip()) for each in text.split(",") if each.strip())


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def _look_once(feeds: ClusterFeeds, topic: str | None) -> None:
    try:
        await feeds.first_look()
    except Unreachable as error:
        raise Failure(f"no broker answers: {error}", choice.unreachable_hint()) from error
    if topic is not None and not len(feeds.table):
        raise Failure(f"there is no topic {topic}", "`barnabas topics list` shows the existing ones")


def show_table(table: ClusterTable, *, every: bool) -> None:
    """Prints the partitions as a table. With `every`, the table includes the many partitions of internal topics that
    are in sync.
    """
    states = table.values(table.by_severity())
    shown = [state for state in states if every or not state.is_internal or state.severity is not Severity.OK]
    print(lines.headline(table))
    output.show_table(lines.COLUMNS, [lines.row(state) for state in shown])
    if left := len(table) - len(shown):
        output.say(f"{output.counted(left, 'partition')} of internal topics, in sync; --all shows them")


async def _watch(feeds: ClusterFeeds, options: FeedOptions, metrics: str | None, as_json: bool, *, every: bool) -> None:
    server = None if metrics is None else await _exporter(feeds, metrics)
    draws = output.stdout.is_terminal and not as_json
    try:
        async with aclosing(watch(feeds, interval_s=options.interval_s, clock_ms=clock_ms, packs=True)) as steps:
            counted = steps if server is None else _counted(steps, server)
            if as_json:
                await _in_json(counted)
            elif draws:
                with LiveView(output.stdout) as view:
                    async for step in counted:
                        view.show(step)
                        if step.table is not None:
                            feeds.focus(step.table.by_severity()[: output.stdout.height].tolist())
            else:
                await _in_lines(counted, every=every)
    finally:
        if server is not None:
            server.close()


async def _exporter(feeds: ClusterFeeds, where: str) -> MetricsServer:
    server = MetricsServer(feeds, clock_ms)
    host, port = address(where)
    try:
        await server.start(host, port)
    except OSError as error:
        raise Failure(f"metrics cannot be served at {where}: {error.strerror or error}") from error
    return server


async def _counted(steps: AsyncIterator[Step], server: MetricsServer) -> AsyncIterator[Step]:
    async for step in steps:
        server.count(step.changes, step.packed)
        yield step


def _say_log_problem(step: Step, before: str | None) -> str | None:
    """Says on stderr why the metadata log is not read, when that begins or changes. Returns the present reason."""
    if step.log_problem != before and step.log_problem is not None:
        output.say(f"the metadata log is not read: {step.log_problem}")
    return step.log_problem


async def _in_json(steps: AsyncIterator[Step]) -> None:
    is_first, log_problem = True, None
    async for step in steps:
        log_problem = _say_log_problem(step, log_problem)
        if is_first and step.table is not None:
            print_table_json(step.table)
            is_first = False
        async for some in _parts(step):
            for change in some:
                _print_json(change.to_json())


async def _in_lines(steps: AsyncIterator[Step], *, every: bool) -> None:
    is_first, log_problem = True, None
    async for step in steps:
        log_problem = _say_log_problem(step, log_problem)
        if is_first and step.table is not None:
            show_table(step.table, every=every)
            is_first = False
        async for some in _parts(step):
            for line in change_lines(some):
                print(line.text, flush=True)


async def _parts(step: Step) -> AsyncIterator[list[Change]]:
    """Yields all changes of a step, in parts. Feeds and scrapes have a turn between them."""
    yield step.changes
    for packed in step.packed:
        for some in packed.in_parts():
            yield some
            await asyncio.sleep(0)


def print_table_json(table: ClusterTable) -> None:
    for piece in json_pieces(table):
        sys.stdout.write(piece)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _print_json(value: object) -> None:
    """Prints one JSON line, even at a terminal, and flushes it, because programs read it as it arrives."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
