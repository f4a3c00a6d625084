"""The live view of `barnabas monitor`: the cluster, its partitions (the worst first), the last changes.

Nothing that matters is cut off. A narrow terminal omits whole columns, first those that can be derived from others;
names keep their partition's number; long lines are wrapped. Columns are wide enough for future values, so that the
table does not jump between updates.
"""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from barnabas.monitor import lines
from barnabas.monitor.changes import Change
from barnabas.monitor.folded_changes import ChangeLine, change_lines
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import at
from barnabas.monitor.watch import Step

STYLES: Final = {
    Severity.OK: "green",
    Severity.NOTICE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
    Severity.CRITICAL: "bold white on red",
}
#: The number of changes kept: several times the number of partitions of `__consumer_offsets`, whose changes share a
#: line.
_CHANGES_KEPT: Final = 500
#: The number of lines for the table's head and frame.
TABLE_LINES: Final = 4
#: The lines for omitted parts, and an empty line.
_SPARE_LINES: Final = 2
#: The columns that a narrow terminal omits, in this order.
_DISPENSABLE: Final = ("followers", "OSR", "size", "replicas", "lag", "ISR", "leader")
#: Names are shortened to this width before a column is omitted.
_NAME_WIDTH: Final = 20
_STATE_WIDTH: Final = len("under-replicated")
_SIZE_WIDTH: Final = len("999.9 kB")
_LAG_DIGITS: Final = 4


class LiveView:
    """The live view, as a context manager; `show` draws the next state. While nothing but the headline changes, only
    the headline is written again, because drawing the table takes a hundred times longer.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        self._count = 0
        self._drawn: tuple[object, _Lines] | None = None
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        #: The same terminal. What is printed to `console` itself makes Live draw all lines again.
        self._beside_live = Console(
            file=console.file,
            force_terminal=True,
            color_system=cast(Any, console.color_system),
            no_color=console.no_color,
        )

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, step: Step) -> None:
        self._changes.extend(step.changes)
        self._count += len(step.changes)
        for packed in step.packed:
            self._changes.extend(packed.changes(range(max(0, len(packed) - _CHANGES_KEPT), len(packed))))
            self._count += len(packed)
        size = self._console.size
        head = _head(step, size.width)
        state = (_on_screen(step.table, size.height), step.problem, self._count, size, len(head))
        is_same = self._drawn is not None and self._drawn[0] == state
        if self._drawn is None or not is_same:
            body = Group(*_body(step, list(self._changes), size.width, size.height - len(head)))
            self._drawn = (state, _Lines(self._console.render_lines(body, pad=False)))
        below = min(len(self._drawn[1]), size.height - len(head))
        is_head_alone = is_same and bool(head) and below > 0
        self._live.update(Group(*head, self._drawn[1]), refresh=not is_head_alone)
        if is_head_alone:
            self._write_head(head, below)

    def _write_head(self, head: Sequence[Text], below: int) -> None:
        """Writes the first lines again. The cursor is in the last of the lines below them, and returns there."""
        with self._beside_live as console:
            console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.CURSOR_UP, len(head) + below - 1)))
            for line in head:
                console.control(Control((ControlType.ERASE_IN_LINE, 2)))
                console.print(line, soft_wrap=True)
            if below > 1:
                console.control(Control((ControlType.CURSOR_DOWN, below - 1)))


def _on_screen(table: ClusterTable | None, height: int) -> object:
    """Returns what the rows on the screen show. Most changes of a large table are in other rows."""
    if table is None:
        return None
    rows = table.by_severity()
    return len(rows), list(table.values(rows[:height]))


class _Lines:
    """Lines that are drawn already."""

    def __init__(self, drawn: list[list[Segment]]) -> None:
        self._drawn = drawn

    def __len__(self) -> int:
        return len(self._drawn)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._drawn:
            yield from line
            yield Segment.line()


def picture(step: Step, changes: Sequence[Change], width: int, height: int) -> RenderableType:
    """Draws the live view within `height` lines: a third for the changes, more if the partitions leave room."""
    head = _head(step, width)
    return Group(*head, *_body(step, changes, width, height - len(head)))


def _head(step: Step, width: int) -> list[Text]:
    found: list[Text] = []
    if step.problem is not None:
        found += wrapped(f"no broker answers: {step.problem}", STYLES[Severity.CRITICAL], width)
    if step.log_problem is not None:
        found += wrapped(f"the metadata log is not read: {step.log_problem}", STYLES[Severity.WARNING], width)
    if step.table is not None:
        found += _headline(step.table, width, is_old=step.problem is not None)
    return found


def _body(step: Step, changes: Sequence[Change], width: int, height: int) -> list[RenderableType]:
    newest_first = list(reversed(change_lines(changes)))
    if step.table is None:
        return [*latest(newest_first, width, height - 1)]
    room = max(3, height - TABLE_LINES - _SPARE_LINES)
    last = latest(newest_first, width, max(2, room // 3, room - len(step.table)))
    return [_table(step.table, width, max(1, room - len(last))), *last]


def latest(newest_first: Iterable[ChangeLine], width: int, room: int) -> list[Text]:
    """Returns the last lines about changes that fit, the newest at the end; the newest is cut rather than omitted."""
    found: list[Text] = []
    for line in newest_first:
        # The headline shows the day.
        drawn = wrapped(line.text.partition("T")[2], STYLES[line.severity], width)
        if len(found) + len(drawn) > room:
            return found or drawn[:room]
        found = [*drawn, *found]
    return found


def wrapped(text: str, style: str, width: int) -> list[Text]:
    """Wraps a text to at most three lines of `width` cells; those after the first are indented."""
    found = textwrap.wrap(
        text, max(20, width), subsequent_indent="    ", break_on_hyphens=False, max_lines=3, placeholder=" …"
    )
    return [Text(line, style=style) for line in found]


def _headline(table: ClusterTable, width: int, *, is_old: bool) -> list[Text]:
    text = f"{at(table.time_ms)}  {lines.headline(table)}"
    return wrapped(f"as last seen: {text}", "dim", width) if is_old else wrapped(text, STYLES[table.severity], width)


def partitions(states: Sequence[PartitionState], width: int) -> Table:
    """Returns a row for each partition, in this order, with as many columns as fit into `width`."""
    rows = [dict(zip(lines.COLUMNS, lines.row(state), strict=True)) for state in states]
    widths = _widths(states, rows)
    name_width = min(widths["partition"], _NAME_WIDTH)
    shown = list(lines.COLUMNS)
    for name in _DISPENSABLE:
        if _framed(shown, widths | {"partition": name_width}) <= width:
            break
        shown.remove(name)
    rest = _framed(shown, widths | {"partition": 0})
    widths["partition"] = max(min(widths["partition"], width - rest), min(name_width, len("partition")))
    table = Table(header_style="bold cyan")
    for name in shown:
        right = name in ("leader", "size")
        table.add_column(name, justify="right" if right else "left", no_wrap=True, min_width=widths[name])
    for state, row in zip(states, rows, strict=True):
        row["partition"] = _shortened(row["partition"], widths["partition"])
        cells = {name: Text(row[name]) for name in shown}
        cells["state"].stylize(STYLES[state.severity])
        table.add_row(*cells.values())
    return table


def _widths(states: Sequence[PartitionState], rows: Sequence[dict[str, str]]) -> dict[str, int]:
    """Returns the width of each column, with room for future values."""
    widths = {name: max((len(row[name]) for row in rows), default=0) for name in lines.COLUMNS}
    widths = {name: max(width, len(name)) for name, width in widths.items()}
    widths["state"] = max(widths["state"], _STATE_WIDTH)
    widths["size"] = max(widths["size"], _SIZE_WIDTH)
    widths["ISR"] = max([widths["ISR"], *(len(row["replicas"]) for row in rows)])
    lags = (" ".join(f"{replica}:{'9' * _LAG_DIGITS}" for replica in state.followers) for state in states)
    widths["lag"] = max([widths["lag"], *(len(lag) for lag in lags)])
    return widths


def _framed(columns: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[name] + 3 for name in columns) + 1


def _shortened(name: str, width: int) -> str:
    """Shortens a name in the middle: the number at its end distinguishes partitions."""
    if len(name) <= width:
        return name
    stem, dash, number = name.rpartition("-")
    return f"{stem[: max(0, width - 1 - len(dash + number))]}…{dash}{number}"


def _table(table: ClusterTable, width: int, rows_max: int) -> Table:
    rows = table.by_severity()
    found = partitions(list(table.values(rows[:rows_max])), width)
    if len(rows) > rows_max:
        found.caption = f"and {len(rows) - rows_max} more, none of them worse"
    return found
