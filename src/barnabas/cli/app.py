"""The Typer app: loads the named command and turns each failure into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
import typer.main

import barnabas
from barnabas.cli import output
from barnabas.cli.commands import ENTRIES, CommandEntry, command_of, missing_extra
from barnabas.cli.contexts import choice, option
from barnabas.embedded.failures import Failure
from barnabas.orders.errors import OrdersError

if TYPE_CHECKING:
    from typer._click.core import Command, Context

_ENTRIES = {entry.name: entry for entry in ENTRIES}


class LazyCommands(typer.core.TyperGroup):
    """The group of all commands. A command's module is imported when the command runs, not when it is listed."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        for entry in ENTRIES:
            self.commands[entry.name] = typer.core.TyperCommand(entry.name, help=entry.help)
        self._loaded: set[str] = set()

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Loads the named command first. Raises Failure if the command needs an extra that is not installed."""
        name = args[0] if args else ""
        entry = _ENTRIES.get(name)
        if entry is not None and name not in self._loaded:
            self._loaded.add(name)
            self.commands[name] = _load(entry)
        if entry is not None and entry.optional_value:
            args = _with_value(entry.optional_value, args)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyCommands,
    help="A replicated, partitioned log for Kafka clients",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run(argv: list[str]) -> int:
    """Runs one command; returns its exit code."""
    choice.begin()
    try:
        app(args=argv, prog_name="barnabas")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has ended (`| head`): print nothing more, and flush nothing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except _reported_errors() as error:
        failure = as_failure(error, command_of(argv))
        if failure is None:
            raise
        output.show_failure(failure)
        return 1
    return 0


def as_failure(error: Exception, command: str) -> Failure | None:
    """Returns the failure to show for an exception; None for a bug of this program, whose traceback is shown."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, ModuleNotFoundError):
        line = missing_extra(error, command)
        return None if line is None else Failure(line)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        return Failure(f"{named}{error.strerror or error}")
    if isinstance(error, UnicodeDecodeError):
        return Failure(f"the input is not UTF-8 text: byte {error.object[error.start]:#04x} at position {error.start}")
    if isinstance(error, OverflowError):
        return Failure(f"a number on the command line is too large: {error}")
    if isinstance(error, OrdersError):
        return Failure(error.message, error.hint)
    if isinstance(error, _client_errors()):
        failure: Failure = importlib.import_module("barnabas.cli.clients").failure(error, "the cluster did not answer")
        return failure
    return None


def _reported_errors() -> tuple[type[Exception], ...]:
    plain = (Failure, OrdersError, ModuleNotFoundError, OSError, UnicodeDecodeError, OverflowError)
    return (*plain, *_client_errors())


def _client_errors() -> tuple[type[Exception], ...]:
    """Returns the exception class of the client library, if the command has loaded it."""
    kafka = sys.modules.get("confluent_kafka")
    return () if kafka is None else (kafka.KafkaException,)


def _load(entry: CommandEntry) -> Command:
    try:
        found = getattr(importlib.import_module(f"barnabas.cli.{entry.module}"), entry.attribute)
    except ModuleNotFoundError as error:
        line = missing_extra(error, entry.name)
        if line is None:
            raise
        raise Failure(line) from error
    parent = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    parent.callback()(_nothing)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=entry.name)
    else:
        parent.command(name=entry.name)(found)
    group = typer.main.get_command(parent)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands[entry.name]
    option.add_to(command)
    return command


def _with_value(option: str, args: list[str]) -> list[str]:
    """Returns the arguments, with an empty value added to the option if it has none; Typer has no optional values."""
    followed = zip(args, [*args[1:], "-"], strict=True)
    return [f"{each}=" if each == option and after.startswith("-") else each for each, after in followed]


def _nothing() -> None:
    """Makes the app a group of commands; does nothing itself."""


def _version(requested: bool) -> None:
    if requested:
        print(f"barnabas {barnabas.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="Use the cluster of this context (`barnabas context list`)"),
    ] = None,
) -> None:
    choice.request(context)


def broker(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A server.properties file with Kafka's property names")],
    override: Annotated[
        list[str] | None,
        typer.Option("--override", metavar="KEY=VALUE", help="A property that overrides the file; repeatable"),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", metavar="ID", help="The id of the cluster, for formatting empty log directories"),
    ] = None,
) -> None:
    """Run one broker in the foreground

    An empty log directory is formatted first. The command prints `started: HOST:PORT` when clients can connect. SIGTERM
    or Ctrl-C shuts the broker down cleanly.
    """
    arguments = ["broker", file]
    for item in override or []:
        arguments += ["--override", item]
    if cluster_id is not None:
        arguments += ["--cluster-id", cluster_id]
    raise typer.Exit(importlib.import_module("barnabas.server.main").main(arguments))


def zookeeper(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="A zoo.cfg file of Apache ZooKeeper")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="The port for clients; default: that of zoo.cfg, else 2181"),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="The address to listen on")] = None,
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", metavar="DIR", help="The directory of snapshots and of the transaction log"),
    ] = None,
    data_log_dir: Annotated[
        str | None,
        typer.Option(
            "--data-log-dir", metavar="DIR", help="The directory of the transaction log, if it is not DIR of --data-dir"
        ),
    ] = None,
    tick_time: Annotated[
        int | None, typer.Option("--tick-time", metavar="MS", help="The unit of timeouts in milliseconds")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of zoo.cfg; repeatable")
    ] = None,
) -> None:
    """Run one ZooKeeper server in the foreground

    Options override the file. The command prints `started: HOST:PORT` when clients can connect. SIGTERM or Ctrl-C stops
    the server; sessions and znodes are kept for the next start.
    """
    options = {
        "--port": port,
        "--host": host,
        "--data-dir": data_dir,
        "--data-log-dir": data_log_dir,
        "--tick-time": tick_time,
    }
    arguments = [] if file is None else [file]
    for name, value in options.items():
        if value is not None:
            arguments += [name, str(value)]
    for item in settings or []:
        arguments += ["--set", item]
    raise typer.Exit(importlib.import_module("barnabas.cli.zookeeper_command").main(arguments))
