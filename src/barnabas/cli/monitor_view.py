"""The live view of `barnabas monitor`: the cluster in a line, its partitions (the worst first), the last changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from barnabas.monitor import lines
from barnabas.monitor.changes import Change
from barnabas.monitor.snapshot import PartitionState, Severity, Snapshot, at
from barnabas.monitor.watch import Step

STYLES: Final = {
    Severity.OK: "green",
    Severity.NOTICE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
    Severity.CRITICAL: "bold white on red",
}
_CHANGES_KEPT: Final = 200
#: Headline, the table's head and frame, what is left out, an empty line.
_FRAME_LINES: Final = 7


class LiveView:
    """As a context; `show` draws the next step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, step: Step) -> None:
        self._changes.extend(step.changes)
        self._live.update(picture(step, list(self._changes), self._console.height), refresh=True)


def picture(step: Step, changes: list[Change], height: int) -> RenderableType:
    """Within `height` lines: a third for the changes, the rest for partitions."""
    parts: list[RenderableType] = []
    if step.problem is not None:
        parts.append(Text(f"no broker answers: {step.problem}", style=STYLES[Severity.CRITICAL]))
    room = max(3, height - _FRAME_LINES)
    changes_room = min(len(changes), max(2, room // 3))
    if step.snapshot is not None:
        parts.append(_headline(step.snapshot, is_old=step.problem is not None))
        parts.append(_table(step.snapshot, max(1, room - changes_room)))
    parts += [Text(lines.change_line(change), style=STYLES[change.severity]) for change in changes[-changes_room:]]
    return Group(*parts)


def _headline(snapshot: Snapshot, *, is_old: bool) -> Text:
    text = f"{at(snapshot.time_ms)}  {lines.headline(snapshot)}"
    return Text(f"as last seen: {text}", style="dim") if is_old else Text(text, style=STYLES[snapshot.severity])


def partitions(states: Iterable[PartitionState]) -> Table:
    """A row for each, in this order."""
    table = Table(header_style="bold cyan")
    for name in lines.COLUMNS:
        table.add_column(name, justify="right" if name in ("leader", "size") else "left", no_wrap=True)
    for state in states:
        cells = [Text(cell) for cell in lines.row(state)]
        cells[1].stylize(STYLES[state.severity])
        table.add_row(*cells)
    return table


def _table(snapshot: Snapshot, rows_max: int) -> Table:
    states = snapshot.by_severity()
    table = partitions(states[:rows_max])
    if len(states) > rows_max:
        table.caption = f"and {len(states) - rows_max} more, none of them worse"
    return table
