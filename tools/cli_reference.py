"""The command line as data, read from the commands themselves, and as a page of the documentation.

python tools/cli_reference.py      prints the page

The site contains the page (`make docs`). Tests compare the commands that the documentation shows with the data.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import typer.main

from barnabas.cli.app import app
from barnabas.cli.commands import ENTRIES

#: A line break inside a paragraph of help.
_WRAPPED = re.compile(r"(?<=\S)\n(?=\S)")


class Parameter(NamedTuple):
    """An argument or an option of a command. `names` is empty for an argument."""

    names: tuple[str, ...]
    metavar: str
    help: str
    is_required: bool
    default: str


class Command(NamedTuple):
    """A command with its full name (`groups list`), or a group of commands."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]
    subcommands: tuple[str, ...]

    @property
    def options(self) -> frozenset[str]:
        return frozenset(name for parameter in self.parameters for name in parameter.names)


def commands() -> dict[str, Command]:
    """Returns every command and group by its full name, in the order of `barnabas --help`."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("barnabas", [], resilient_parsing=True)
    found: dict[str, Command] = {}
    for entry in ENTRIES:
        _, loaded, _ = root.resolve_command(context, [entry.name])
        for command in _walk(entry.name, loaded):
            found[command.name] = command
    return found


def _walk(name: str, loaded: Any) -> Iterator[Command]:
    inner: dict[str, Any] = getattr(loaded, "commands", {})
    parameters = tuple(_parameter(each) for each in loaded.params if not getattr(each, "hidden", False))
    yield Command(name, inspect.cleandoc(loaded.help or ""), parameters, tuple(inner))
    for word, each in inner.items():
        yield from _walk(f"{name} {word}", each)


def _parameter(parameter: Any) -> Parameter:
    default = parameter.default
    is_option = parameter.param_type_name == "option"
    names = (*parameter.opts, *parameter.secondary_opts) if is_option else ()
    metavar = parameter.metavar or ("" if isinstance(default, bool) else parameter.name.upper())
    if not is_option and parameter.nargs != 1 and not metavar.endswith("..."):
        metavar += "..."
    is_shown = default not in (None, False, "", (), []) and not callable(default)
    shown = str(getattr(default, "value", default)) if is_shown else ""
    return Parameter(names, metavar, parameter.help or "", bool(parameter.required), shown)


def page() -> str:
    """Returns the reference of all commands as Markdown."""
    lines = [
        "# Command reference",
        "",
        "All commands with their arguments and options, from their own `--help`. "
        "[Command line](cli.md) describes what they are for.",
    ]
    for command in commands().values():
        level = "##" if " " not in command.name else "###"
        lines += ["", f"{level} barnabas {command.name}", "", _WRAPPED.sub(" ", _escaped(command.help))]
        lines += _usage(command)
        lines += _table(command)
    return "\n".join(lines) + "\n"


def _usage(command: Command) -> Sequence[str]:
    if command.subcommands:
        return ()
    arguments = [parameter.metavar for parameter in command.parameters if not parameter.names]
    return ("", "```text", " ".join(["barnabas", command.name, *arguments, "[OPTIONS]"]), "```")


def _table(command: Command) -> Iterator[str]:
    if not command.parameters:
        return
    yield from ("", "| option or argument | |", "|---|---|")
    for parameter in command.parameters:
        metavar = f" {parameter.metavar}" if parameter.metavar and parameter.names else parameter.metavar
        shown = f"{', '.join(parameter.names)}{metavar}".replace("|", r"\|")
        notes = [_escaped(parameter.help)]
        if parameter.is_required:
            notes.append("Required")
        if parameter.default:
            notes.append(f"Default: `{parameter.default}`")
        yield f"| `{shown}` | {'. '.join(note for note in notes if note)} |"


def _escaped(text: str) -> str:
    """Returns help text in which nothing is read as the end of a cell or as HTML. Code in backticks stays as it is."""
    parts = text.split("`")
    outside = (part.replace("<", "&lt;").replace("*", r"\*") for part in parts[::2])
    shown = [part for pair in zip(outside, [*parts[1::2], ""], strict=True) for part in pair]
    return "".join(f"`{part}`" if index % 2 else part for index, part in enumerate(shown[:-1])).replace("|", r"\|")


if __name__ == "__main__":
    sys.stdout.write(page())
