"""The Typer app: every command, and how a command that failed ends."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated

import typer
from confluent_kafka import KafkaException

import barnabas
from barnabas.cli import cluster, output
from barnabas.cli.check import check
from barnabas.cli.clients import failure
from barnabas.cli.consume import consume
from barnabas.cli.demo import demo
from barnabas.cli.elect import elect
from barnabas.cli.explain import explain
from barnabas.cli.failures import Failure
from barnabas.cli.format import format_directories, info, random_uuid
from barnabas.cli.groups import app as groups
from barnabas.cli.log import app as log
from barnabas.cli.monitor import monitor
from barnabas.cli.orders import app as orders
from barnabas.cli.pipeline import app as pipeline
from barnabas.cli.produce import produce
from barnabas.cli.reassign import app as reassign
from barnabas.cli.simulate import simulate
from barnabas.cli.topics import app as topics
from barnabas.cli.transactions import app as transactions
from barnabas.orders.errors import OrdersError

app = typer.Typer(
    help="A replicated, partitioned log that Kafka clients use as if it were Apache Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run(argv: list[str]) -> int:
    """One command; returns its exit code."""
    try:
        app(args=argv, prog_name="barnabas")
    except Failure as refused:
        output.show_failure(refused)
        return 1
    except OrdersError as refused:
        output.show_failure(Failure(refused.message, refused.hint))
        return 1
    except KafkaException as error:
        output.show_failure(failure(error, "the cluster did not answer"))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing more to say, nor to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return 0


def _version(asked: bool) -> None:
    if asked:
        print(f"barnabas {barnabas.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def broker(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A server.properties with Kafka's own names.")],
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="Wins over the file; may be repeated.")
    ] = None,
) -> None:
    """Run one broker in the foreground. An empty log directory is formatted first.

    Prints `started: HOST:PORT` when clients can use it; SIGTERM or Ctrl-C stop it in order.
    """
    arguments = ["broker", file]
    for item in override or []:
        arguments += ["--override", item]
    raise typer.Exit(importlib.import_module("barnabas.server.main").main(arguments))


app.command()(cluster.up)
app.command()(cluster.status)
app.command()(cluster.down)
app.command(name="format")(format_directories)
app.command()(random_uuid)
app.command()(info)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")
app.add_typer(transactions, name="transactions")
app.command()(elect)
app.command()(explain)
app.command()(monitor)
app.add_typer(reassign, name="reassign")
app.add_typer(pipeline, name="pipeline")
app.command()(produce)
app.command()(consume)
app.command()(demo)
app.add_typer(orders, name="orders")
app.add_typer(log, name="log")
app.command()(simulate)
app.command()(check)
