"""`barnabas pipeline`: Spark's streams over the cluster's topics, and the tables that they write.

The commands themselves load the heavy libraries, so that other commands do not wait for them.
"""

from __future__ import annotations

import importlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from barnabas.cli import clients, output
from barnabas.cli.local_cluster import interruptible
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, key_values, source_options
from barnabas.common.errors import ConfigError
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure

if TYPE_CHECKING:
    from barnabas.pipelines.commits import Books, Commit

app = typer.Typer(help="Run Spark pipelines over orders, and query their tables")

Tables = Annotated[Path, typer.Option("--tables", metavar="DIR", help="Directory of the tables")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Directory of the checkpoint; default: _checkpoint in the directory of the tables",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="spark://, yarn, k8s:// or sc:// (Connect); default: this machine"),
]
Settings = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable")
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="An option of the source (kafka.sasl.mechanism=...); repeatable",
        callback=source_options,
    ),
]
DEFAULT_TABLES = Path("tables")
_POLL_S = 0.2
#: Spark gives up its source's process too early on an overloaded machine.
_STARTS = 12
_SAMPLE_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 60.0
_UNITS_MS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


@app.command()
def orders(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Annotated[str, typer.Option(help="Topic with the orders")] = "orders",
    tables: Tables = DEFAULT_TABLES,
    checkpoint: Checkpoint = None,
    sink: Annotated[str, typer.Option(help="Format of the tables: parquet or delta (by delta-rs)")] = "parquet",
    trigger: Annotated[
        str, typer.Option(help='"available-now" ends when everything is read; "1 second" continues until it is stopped')
    ] = "available-now",
    watermark: Annotated[str, typer.Option(help="Maximum lateness of an order that still counts")] = "2 days",
    batch_records: Annotated[int, typer.Option(help="Maximum number of records in one batch", min=1)] = 100_000,
    master: Master = None,
    conf: Settings = None,
    option: SourceOptions = None,
    as_json: Json = False,
) -> None:
    """Stream orders into tables, each exactly once, and invalid ones into quarantine with a reason

    A restarted stream continues where it stopped, however it ended. Ctrl-C and SIGTERM stop it after the current batch.
    """
    tables, checkpoint = tables.absolute(), (checkpoint or tables / "_checkpoint").absolute()
    watermark_ms = duration_ms(watermark)
    if sink not in ("parquet", "delta"):
        raise Failure(f"--sink {sink}: expected parquet or delta")
    source = key_values(option or [], "--option")
    admin = _admin(bootstrap, source)
    topic_id = _topic_id(admin, bootstrap, topic)
    with interruptible(), _pipeline_failures(tables):
        module = importlib.import_module("barnabas.pipelines.orders")
        failures = importlib.import_module("barnabas.pipelines.failures")
        pipeline = module.OrdersPipeline(topic, tables, checkpoint, sink, watermark_ms)
        # Faults of tables or checkpoint are reported now, not after Spark has started.
        pipeline.open(topic_id).release()
        options = {"kafka.bootstrap.servers": bootstrap, "maxOffsetsPerTrigger": str(batch_records)}
        with _session(master, conf, tables / "_spark.log") as spark:
            for starts_left in reversed(range(_STARTS)):
                started = pipeline.start(spark, options | source, trigger, topic_id)
                arrivals = _arrivals(tables, admin, topic)
                try:
                    _follow(started, tables)
                    break
                except failures.causes() as error:
                    if not starts_left or not failures.is_slow_start(error):
                        raise
                    output.say(
                        "Python did not start within Spark's limit of 10 s, because the machine is busy; retrying"
                    )
                finally:
                    arrivals.close()
                    module.release(started)
    last = importlib.import_module("barnabas.pipelines.commits").CommitLog(tables).last()
    _show_books(last, tables, as_json)


@app.command()
def health(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tables: Tables = DEFAULT_TABLES,
    master: Master = None,
    conf: Settings = None,
    option: SourceOptions = None,
    as_json: Json = False,
) -> None:
    """Compute the cluster's health from its journal: leaders, elections, times under min ISR and without a leader

    The command rewrites its tables each time, in DIR/health.
    """
    tables = tables.absolute()
    module_name = "barnabas.pipelines.health"
    source = key_values(option or [], "--option")
    if not clients.has_journal(_admin(bootstrap, source)):
        raise Failure(
            f"there is no journal ({EVENTS_TOPIC}) at {bootstrap}",
            "a cluster creates it with its first unplanned change; Apache Kafka has none",
        )
    with interruptible(), _pipeline_failures(tables):
        module = importlib.import_module(module_name)
        options = {"kafka.bootstrap.servers": bootstrap} | source
        with _session(master, conf, tables / "_spark.log") as spark:
            made = module.run_health(spark, options, tables, time.time_ns() // 1_000_000)
    shown = {name: made[name].to_pylist() for name in ("leader_share", "elections", "recovery")}
    if as_json:
        output.show_json(shown)
        return
    for name, rows in shown.items():
        columns = made[name].column_names
        output.show_table(columns, [[_cell(row[column]) for column in columns] for row in rows], title=name)
    output.say_done(f"tables in {tables / 'health'}: {', '.join(made)}")


@app.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SELECT", help='A query, such as "SELECT count(*) FROM orders"')],
    tables: Tables = DEFAULT_TABLES,
    as_json: Json = False,
) -> None:
    """Query the tables in SQL with DuckDB: orders, order_lines, revenue_by_store_hour, household_daily, ..."""
    with _pipeline_failures(tables, None):
        module = importlib.import_module("barnabas.pipelines.query")
        table = module.run(tables.absolute(), sql)
        columns, rows = table.column_names, module.arrow_rows(table)
    if as_json:
        output.show_json([{name: _plain(value) for name, value in zip(columns, row, strict=True)} for row in rows])
    else:
        output.show_table(columns, [[_cell(value) for value in row] for row in rows])


@app.command()
def pictures(
    tables: Tables = DEFAULT_TABLES,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="Directory for the pictures; default: pictures in the directory of the tables"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw charts of revenue, latency, leaders over time and health"""
    tables = tables.absolute()
    with _pipeline_failures(tables, None):
        made = importlib.import_module("barnabas.pipelines.pictures").draw_all(tables, to or tables / "pictures")
    if as_json:
        output.show_json([str(path) for path in made])
        return
    if not made:
        raise Failure("there is nothing to draw yet", "run `barnabas pipeline orders` or `barnabas pipeline health`")
    for path in made:
        print(path)


def _cell(value: Any) -> Any:
    """Formats a value for a reader."""
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix("+00:00")
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    """Converts a value for JSON: whole numbers and text unchanged, money to text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@contextmanager
def _session(master: str | None, conf: list[str] | None, log_file: Path) -> Iterator[Any]:
    spark_session = importlib.import_module("barnabas.pipelines.session").spark_session
    settings = key_values(conf or [], "--conf")
    started = time.monotonic()
    with spark_session(master, settings, log_file) as spark:
        output.say_done(f"Spark {spark.version} started in {time.monotonic() - started:.1f} s; its log is {log_file}")
        yield spark


def _admin(bootstrap: str, source: Mapping[str, str]) -> AdminClient:
    """Returns a client with the security of the source's options (kafka.sasl.mechanism=...)."""
    security = importlib.import_module("barnabas.spark.producer_security").producer_security
    given = {key.removeprefix("kafka."): value for key, value in source.items() if key.startswith("kafka.")}
    try:
        settings = security(given)
    except ConfigError as error:
        raise Failure(str(error)) from error
    return clients.admin_client(bootstrap, [f"{key}={value}" for key, value in settings.items()])


def _arrivals(tables: Path, admin: AdminClient, topic: str) -> Any:
    partitions = admin.list_topics(topic, timeout=clients.TIMEOUT_S).topics[topic].partitions
    requested = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}

    def end_offsets() -> dict[int, int]:
        futures = admin.list_offsets(requested, request_timeout=_SAMPLE_TIMEOUT_S)
        try:
            return {place.partition: future.result().offset for place, future in futures.items()}
        except KafkaException as error:
            raise OSError(str(error)) from error

    return importlib.import_module("barnabas.pipelines.latency").Arrivals(tables, end_offsets)


def _follow(query: Any, tables: Path) -> None:
    """Prints a line for each batch until the stream ends or a signal arrives."""
    log = importlib.import_module("barnabas.pipelines.commits").CommitLog(tables)
    last = log.last()
    shown = 0 if last is None else last.number
    with _signals() as stop:
        while not query.awaitTermination(_POLL_S):
            shown = _show_batches(log, shown)
            if stop.is_set():
                _stop(query)
        _show_batches(log, shown)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Yields an event that the first signal sets; the second signal ends the command immediately.

    An exception in the middle of a call to Java, as `interruptible` would raise, breaks the connection to Java.
    """
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = [(number, signal.signal(number, on_signal)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _stop(query: Any) -> None:
    """Stops the stream after the current batch, unless that takes too long; nothing is lost in either case."""
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    query.stop()


def _show_batches(log: Any, shown: int) -> int:
    last = log.last()
    if last is None or last.number == shown:
        return shown
    for number in range(shown + 1, last.number + 1):
        commit: Commit = log.read(number)
        output.say(
            f"batch {number}: {output.counted(commit.batch.read, 'record')}, {commit.batch.orders:,} orders, "
            f"{commit.batch.duplicates:,} duplicates, {sum(commit.batch.quarantined.values()):,} in quarantine; "
            f"{commit.recorded_ms - commit.started_ms:,} ms"
        )
    number_shown: int = last.number
    return number_shown


def _show_books(last: Commit | None, tables: Path, as_json: bool) -> None:
    if last is None:
        output.say("there was no record to read")
        return
    total: Books = last.total
    if as_json:
        output.show_json({"tables": str(tables), "batches": last.number, "balanced": total.balanced, **plain(total)})
    else:
        rows: list[tuple[str, object]] = [
            ("records read", f"{total.read:,}"),
            ("orders", f"{total.orders:,}"),
            ("order lines", f"{total.lines:,}"),
            ("sales", f"{total.sales_cents // 100:,}.{total.sales_cents % 100:02d}"),
            ("duplicates removed", f"{total.duplicates:,}"),
            *((f"in quarantine: {reason}", f"{count:,}") for reason, count in sorted(total.quarantined.items())),
        ]
        output.show_table(["orders pipeline", "count"], rows)
    if not total.balanced:
        raise Failure(
            "the number of records read is not orders + duplicates + quarantine",
            f"the commits are in {tables}/_commits",
        )


def plain(books: Books) -> dict[str, Any]:
    """Returns a pipeline's totals (orders, lines, sales, duplicates, quarantined records) as JSON values."""
    return {
        "read": books.read,
        "orders": books.orders,
        "lines": books.lines,
        "sales_cents": books.sales_cents,
        "duplicates": books.duplicates,
        "quarantined": dict(books.quarantined),
    }


@contextmanager
def _pipeline_failures(tables: Path, *hint: str | None) -> Iterator[None]:
    """Turns an exception of a pipeline into the one line that ends a command."""
    failures = importlib.import_module("barnabas.pipelines.failures")
    try:
        yield
    except ModuleNotFoundError as error:
        raise Failure(
            f"the pipeline commands need the package {error.name}", "pip install 'barnabas[pipeline]'"
        ) from error
    except failures.causes() as error:
        pipeline_error = failures.pipeline_error(error, tables, *hint)
        raise Failure(pipeline_error.message, pipeline_error.hint) from error


def _topic_id(admin: AdminClient, bootstrap: str, topic: str) -> str | None:
    """Returns the topic's id before Spark starts, which takes long. Raises Failure if the cluster or the topic is
    missing.
    """
    if topic not in admin.list_topics(timeout=clients.TIMEOUT_S).topics:
        raise Failure(
            f"topic {topic} does not exist at {bootstrap}",
            "create it with `barnabas topics create`, or choose another one with --topic",
        )
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=clients.TIMEOUT_S)
    return str(clients.result(described[topic], f"cannot describe topic {topic}").topic_id)


def duration_ms(text: str) -> int:
    """Parses a duration: "2 days" -> 172800000."""
    number, _, unit = text.strip().partition(" ")
    factor = _UNITS_MS.get(unit.strip().lower().removesuffix("s"))
    if factor is None or not number.isdigit():
        raise Failure(f"{text!r} is not a duration", 'write it as "90 minutes" or "2 days"')
    return int(number) * factor
