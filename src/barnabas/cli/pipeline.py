"""`barnabas pipeline`: Spark's streams over the cluster's topics, and what they have made.

The heavy libraries are loaded inside the commands: the others must not wait for them.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import TopicCollection

from barnabas.cli import clients, output
from barnabas.cli.cluster import Interruption, interruptible
from barnabas.cli.failures import Failure
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, key_values

if TYPE_CHECKING:
    from barnabas.pipelines.commits import Books, Commit

app = typer.Typer(help="Spark pipelines: orders into tables, the cluster's health, and queries over both.")

Tables = Annotated[Path, typer.Option("--tables", metavar="DIR", help="Where the tables are.")]
Checkpoint = Annotated[
    Path | None, typer.Option("--checkpoint", metavar="DIR", help="Default: _checkpoint in the directory of tables.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="spark://, yarn, k8s:// or sc:// (Connect). Default: this machine."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="An option of the source (kafka.sasl.mechanism=...); repeatable."
    ),
]
DEFAULT_TABLES = Path("tables")
_POLL_S = 0.2
_STOP_TIMEOUT_S = 60.0
_UNITS_MS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


@app.command()
def orders(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Annotated[str, typer.Option(help="The topic of the orders.")] = "orders",
    tables: Tables = DEFAULT_TABLES,
    checkpoint: Checkpoint = None,
    sink: Annotated[str, typer.Option(help="parquet or delta (by delta-rs).")] = "parquet",
    trigger: Annotated[
        str, typer.Option(help='"available-now" ends when all is read; "1 second" goes on until it is stopped.')
    ] = "available-now",
    watermark: Annotated[str, typer.Option(help="How late an order may be and still count.")] = "2 days",
    batch_records: Annotated[int, typer.Option(help="At most so many records in one batch.", min=1)] = 100_000,
    master: Master = None,
    conf: Settings = None,
    option: SourceOptions = None,
    as_json: Json = False,
) -> None:
    """Stream orders into tables: each once, bad ones into quarantine with a reason.

    Started again, it goes on where it stopped, however it ended. Ctrl-C and SIGTERM stop it after the batch under way.
    """
    tables, checkpoint = tables.absolute(), (checkpoint or tables / "_checkpoint").absolute()
    watermark_ms = duration_ms(watermark)
    if sink not in ("parquet", "delta"):
        raise Failure(f"--sink {sink}: expected parquet or delta")
    topic_id = _topic_id(bootstrap, topic)
    with interruptible() as interruption, _pipeline_failures(tables):
        module = importlib.import_module("barnabas.pipelines.orders")
        pipeline = module.OrdersPipeline(topic, tables, checkpoint, sink, watermark_ms)
        options = {"kafka.bootstrap.servers": bootstrap, "maxOffsetsPerTrigger": str(batch_records)}
        with _session(master, conf, tables / "_spark.log") as spark:
            query = pipeline.start(spark, options | key_values(option or [], "--option"), trigger, topic_id)
            try:
                _follow(query, tables, interruption)
            finally:
                module.release(query)
    last = importlib.import_module("barnabas.pipelines.commits").CommitLog(tables).last()
    _show_books(last, tables, as_json)


@contextmanager
def _session(master: str | None, conf: list[str] | None, log_file: Path) -> Iterator[Any]:
    spark_session = importlib.import_module("barnabas.pipelines.session").spark_session
    settings = key_values(conf or [], "--conf")
    started = time.monotonic()
    with spark_session(master, settings, log_file) as spark:
        output.say_done(f"Spark {spark.version} started in {time.monotonic() - started:.1f} s; its log is {log_file}")
        yield spark


def _follow(query: Any, tables: Path, interruption: Interruption) -> None:
    """Until the stream ends, or a signal comes; a line for each batch meanwhile."""
    log = importlib.import_module("barnabas.pipelines.commits").CommitLog(tables)
    last = log.last()
    shown = 0 if last is None else last.number
    try:
        while not query.awaitTermination(_POLL_S):
            interruption.check()
            shown = _show_batches(log, shown)
        _show_batches(log, shown)
    except KeyboardInterrupt:
        _stop(query)
        _show_batches(log, shown)


def _stop(query: Any) -> None:
    """After the batch under way, if that does not take too long; nothing is lost if it does."""
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
    importlib.import_module("barnabas.pipelines.commits")
    if last is None:
        output.say("no record was there to be read")
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
        raise Failure("records read are not orders + duplicates + quarantine", f"the commits are in {tables}/_commits")


def plain(books: Books) -> dict[str, Any]:
    """The books as JSON has them."""
    return {
        "read": books.read,
        "orders": books.orders,
        "lines": books.lines,
        "sales_cents": books.sales_cents,
        "duplicates": books.duplicates,
        "quarantined": dict(books.quarantined),
    }


@contextmanager
def _pipeline_failures(tables: Path) -> Iterator[None]:
    """What a pipeline raises, as the one line a command ends with."""
    try:
        yield
    except (Failure, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        raise Failure(f"the pipelines need the package {error.name}", "pip install 'barnabas[pipeline]'") from error
    except Exception as error:
        told = importlib.import_module("barnabas.pipelines.failures").told(error, tables)
        raise Failure(told.message, told.hint) from error


def _topic_id(bootstrap: str, topic: str) -> str | None:
    """Asked before Spark starts, which takes long: is anybody there, and does the topic exist?"""
    clients.check_reachable(bootstrap)
    admin = clients.admin_client(bootstrap)
    if topic not in admin.list_topics(timeout=clients.TIMEOUT_S).topics:
        raise Failure(
            f"topic {topic} does not exist at {bootstrap}",
            "make it with `barnabas topics create`, or name another by --topic",
        )
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=clients.TIMEOUT_S)
    return str(clients.result(described[topic], f"cannot describe topic {topic}").topic_id)


def duration_ms(text: str) -> int:
    """ "2 days" -> 172800000."""
    number, _, unit = text.strip().partition(" ")
    factor = _UNITS_MS.get(unit.strip().lower().removesuffix("s"))
    if factor is None or not number.isdigit():
        raise Failure(f"{text!r} is no duration", 'write it as "90 minutes" or "2 days"')
    return int(number) * factor
