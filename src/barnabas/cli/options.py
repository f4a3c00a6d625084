"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli.contexts import choice
from barnabas.cli.contexts.store import Context
from barnabas.embedded.failures import Failure

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def _addresses(ctx: typer.Context, value: str) -> str:
    """Returns the given addresses, else those of the context in use."""
    context = _context(ctx)
    return value if context is None else ",".join(context.bootstrap)


def _properties(ctx: typer.Context, value: list[str] | None) -> list[str] | None:
    """Returns the client settings of the context in use and those of the command line, which take precedence."""
    context = _context(ctx)
    if context is not None:
        value = [*(f"{key}={each}" for key, each in context.properties.items()), *(value or ())]
    choice.set_client_settings(dict(each.partition("=")[::2] for each in value or ()))
    return value


def source_options(ctx: typer.Context, value: list[str] | None) -> list[str] | None:
    """Returns the client settings of the context in use and the given ones, as options of a Spark source."""
    context = _context(ctx)
    settings = {} if context is None else context.properties
    return [*(f"kafka.{key}={each}" for key, each in settings.items()), *(value or ())]


def is_given(ctx: typer.Context, parameter: str) -> bool:
    """Returns whether the command line sets a parameter, even if to its default value."""
    source = ctx.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _context(ctx: typer.Context) -> Context | None:
    """Returns the context of a command; None if its addresses are given, or if no context applies."""
    if is_given(ctx, "bootstrap"):
        return None
    source = ctx.get_parameter_source("bootstrap")
    if source is not None and source.name == "ENVIRONMENT" and choice.requested() is None:
        return None
    chosen = choice.use()
    return None if chosen is None else chosen.context


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help=f"Addresses of brokers; default: those of the context in use, else {DEFAULT_BOOTSTRAP}",
        show_default=False,
        callback=_addresses,
        # The source of its value determines whether the settings of a context are used.
        is_eager=True,
    ),
]

ClientProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="KEY=VALUE",
        help="A client property (librdkafka's names); repeatable",
        callback=_properties,
    ),
]

#: The largest values of fields of the protocol.
INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Show this moment of a history instead: 12:03:10, or a date with a time"),
]
HistoryOption = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="The file of --at; `barnabas history record` writes it")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON")]


def read_text(path: Path) -> str:
    """Returns the text of a file. Raises Failure for one that is not UTF-8, OSError for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Failure(f"{path} is not a text file: byte {error.start} is not UTF-8") from error


def key_values(items: Iterable[str], option: str) -> dict[str, str]:
    """Parses ["a=1", "b=2"] to {"a": "1", "b": "2"}; a later value overrides an earlier one."""
    values: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise Failure(f"{option} {item}: expected KEY=VALUE")
        values[key.strip()] = value
    return values
