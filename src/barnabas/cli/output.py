"""The output of commands: colours and boxes at a terminal, plain aligned text for a pipe, JSON on request.

Results go to stdout; progress, notes and errors go to stderr, so that stdout can always be piped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from barnabas.embedded.failures import Failure

_NUMBER = re.compile(r"-?\d[\d,.]*( [A-Za-z]+(/s)?)?")

_WIDE = 110

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def show_json(value: Any) -> None:
    """Prints one JSON document: indented at a terminal, one line for a pipe."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if stdout.is_terminal else None)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write(text: str) -> None:
    """Writes a piece of the result unchanged."""
    sys.stdout.write(text)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Prints a table. Numbers, with or without a unit, are right-aligned."""
    values = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    numeric = [bool(values) and all(_is_number(row[index]) for row in values) for index in range(len(columns))]
    if stdout.is_terminal:
        _show_boxed(columns, cells, numeric, title)
    else:
        _show_plain(columns, cells, numeric, title)


def say(text: str) -> None:
    """Prints a note to the user on stderr."""
    stderr.print(Text(text))


def say_done(text: str) -> None:
    stderr.print(Text("✓ ", style="green").append(text, style="default") if stderr.is_terminal else Text(text))


def show_failure(failure: Failure) -> None:
    stderr.print(Text("error: ", style="bold red").append(failure.message, style="default"))
    if failure.hint:
        stderr.print(Text(failure.hint, style="dim"))


def is_narrow() -> bool:
    return stderr.width < _WIDE


def progress(unit: str) -> Progress:
    """Shows a progress bar on stderr; nothing if that is not a terminal. A narrow terminal shows the numbers first."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=10 if is_narrow() else 32),
        MofNCompleteColumn(),
        TextColumn(f"{unit} {{task.fields[rate]}}"),
        *([] if is_narrow() else [TimeElapsedColumn()]),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


def rate(count: float, elapsed_s: float, unit: str) -> str:
    return f"{count / elapsed_s:,.0f} {unit}/s" if elapsed_s > 0 else f"- {unit}/s"


def counted(count: int, noun: str) -> str:
    """Formats a count: 1 -> "1 record", 2000 -> "2,000 records"."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def size(count_bytes: float) -> str:
    """Formats a size: 1536 -> "1.5 kB"; the units are decimal, as for all throughput figures."""
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value) or "-"
    return str(value)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float | str) and _NUMBER.fullmatch(str(value)) is not None)


def _show_boxed(columns: Sequence[str], cells: list[list[str]], numeric: list[bool], title: str | None) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan")
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    stdout.print(table)


def _show_plain(columns: Sequence[str], cells: list[list[str]], numeric: list[bool], title: str | None) -> None:
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    if title:
        sys.stdout.write(title + "\n")
    for line in lines:
        parts = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        sys.stdout.write("  ".join(parts).rstrip() + "\n")
    sys.stdout.flush()
