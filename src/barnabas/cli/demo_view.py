"""The display of the demo: a live view at a terminal, plain lines otherwise.

Both show the same: phases, the monitor's changes with their causes, and how many records are acknowledged and in the
tables. At a terminal these lines scroll above the live bars and partitions, and remain when the view closes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from barnabas.cli.monitor_view import STYLES, partitions, wrapped
from barnabas.monitor.changes import Change
from barnabas.monitor.partition_state import PartitionState

_REPORT_EVERY_S: Final = 5.0
_REFRESH_S: Final = 0.2
_BAR_WIDTH: Final = 40


class View:
    """The display, as a context manager. Any thread can report changes to it."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._started_s = time.monotonic()
        self._phase = ""
        self._shown_s = 0.0
        self._shown = (-1, -1)
        self._lock = threading.Lock()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def phase(self, text: str) -> None:
        self._phase = text
        self._line(Text(f"{self._clock()}  {text}", style="bold"))

    def say(self, text: str) -> None:
        self._line(Text(f"{self._clock()}  {text}"))

    def change(self, change: Change) -> None:
        """Shows a change that the monitor reported."""
        because = "" if change.cause is None else f", because {change.cause}"
        text = f"{self._clock()}  {change.subject}  {change.kind}: {change.text}{because}"
        self._line(Text(text, style=STYLES[change.severity]))

    def show(self, acknowledged: int, applied: int, states: Sequence[PartitionState]) -> None:
        """Shows the progress. A terminal is redrawn a few times a second; plain lines are written every five
        seconds.
        """
        now_s = time.monotonic()
        if self._live is not None:
            if now_s - self._shown_s >= _REFRESH_S:
                self._shown_s = now_s
                with self._lock:
                    self._live.update(self._picture(acknowledged, applied, states), refresh=True)
        elif now_s - self._shown_s >= _REPORT_EVERY_S and (acknowledged, applied) != self._shown:
            self._shown_s, self._shown = now_s, (acknowledged, applied)
            self.say(f"{acknowledged:,} records acknowledged, {applied:,} in the tables")

    def _line(self, text: Text) -> None:
        with self._lock:
            if self._live is None:
                self._console.print(text)
            else:
                for line in wrapped(text.plain, str(text.style), self._console.width):
                    self._console.print(line)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._started_s:6.1f} s"

    def _picture(self, acknowledged: int, applied: int, states: Sequence[PartitionState]) -> RenderableType:
        width = self._console.width
        parts: list[RenderableType] = [
            *wrapped(f"{self._clock()}  {self._phase}", "bold", width)[:1],
            self._bars(acknowledged, applied),
        ]
        if states:
            parts.append(partitions(states, width))
        return Group(*parts)

    def _bars(self, acknowledged: int, applied: int) -> Table:
        grid = Table.grid(padding=(0, 2))
        for name, count in (("acknowledged", acknowledged), ("in the tables", applied)):
            total = max(self._total, acknowledged)
            grid.add_row(name, ProgressBar(total=total, completed=count, width=_BAR_WIDTH), f"{count:,}")
        return grid
