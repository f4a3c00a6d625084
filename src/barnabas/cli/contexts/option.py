"""The option --context, which every command for a cluster accepts in addition to `barnabas` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
import typer.main

from barnabas.cli.contexts import choice

if TYPE_CHECKING:
    from typer._click.core import Command, Parameter

#: Commands without --bootstrap that can use the directory of a context.
_OF_DIRECTORIES = frozenset({"up", "status", "down"})


def add_to(command: Command) -> None:
    """Adds the option to a command, or to all commands of a group, that connect to a cluster."""
    for each in getattr(command, "commands", {}).values():
        add_to(each)
    if command.name in _OF_DIRECTORIES or any(parameter.name == "bootstrap" for parameter in command.params):
        command.params.append(_option())


def _option() -> Parameter:
    app = typer.Typer(add_completion=False)
    app.command()(_with_option)
    return next(each for each in typer.main.get_command(app).params if each.name == "context")


def _request(value: str | None) -> None:
    choice.request(value)


def _with_option(
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Use the cluster of this context (`barnabas context list`)",
            callback=_request,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None:
    """Declares the option --context, which `add_to` copies; never called."""
