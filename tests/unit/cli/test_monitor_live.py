"""The live view on a terminal: what its codes leave on the screen, and how much of it is drawn again."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from tests.support.watched import look, partition, table_of

from barnabas.cli.monitor_view import LiveView
from barnabas.monitor.changes import Change
from barnabas.monitor.packed_changes import PACKED_FROM, PackedChanges
from barnabas.monitor.watch import Step

_CODE = re.compile(r"\x1b\[(\?25[lh]|[\d;]*[ABKm])|\r|\n|[^\x1b\r\n]+")
_HEIGHT = 24


class Screen:
    """The lines of a terminal that knows the codes of the live view: up, down, erase a line; colors are ignored."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = self._column = 0

    def write(self, text: str) -> None:
        assert "".join(found[0] for found in _CODE.finditer(text)) == text, "a code that the screen does not know"
        for found in _CODE.finditer(text):
            self._take(found[0])

    def _take(self, piece: str) -> None:
        if piece == "\r":
            self._column = 0
        elif piece == "\n":
            self._row, self._column = self._row + 1, 0
            self.lines += [""] * (self._row + 1 - len(self.lines))
        elif not piece.startswith("\x1b"):
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + piece + line[self._column + len(piece) :]
            self._column += len(piece)
        elif piece.endswith("A"):
            self._row -= int(piece[2:-1])
        elif piece.endswith("B"):
            self._row += int(piece[2:-1])
        elif piece.endswith("K"):
            self.lines[self._row] = ""
        assert 0 <= self._row < len(self.lines)


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setenv("TERM", "xterm-256color")
    return Console(file=io.StringIO(), width=120, height=_HEIGHT, force_terminal=True, color_system="256")


def written(console: Console) -> str:
    """Returns what was written since the last call."""
    file = console.file
    assert isinstance(file, io.StringIO)
    text = file.getvalue()
    file.seek(0)
    file.truncate()
    return text


@pytest.mark.parametrize("count", [1, 8, 60])
@pytest.mark.parametrize("problem", [None, "host:1: connection refused"])
def test_while_only_the_time_changes_only_the_headline_is_written(
    console: Console, count: int, problem: str | None
) -> None:
    table = table_of(*(partition(f"orders-{number}") for number in range(count)))
    screen = Screen()
    with LiveView(console) as view:
        view.show(Step(table, [], problem))
        screen.write(written(console))
        before = list(screen.lines)
        for _ in range(3):
            table.time_ms += 61_000
            view.show(Step(table, [], problem))
            again = written(console)
            assert len(again) < 500, "the table is not drawn again"
            screen.write(again)
        (changed,) = [row for row, line in enumerate(screen.lines) if line != before[row]]
        assert changed == (0 if problem is None else 1), "the line with the time"
        view.show(Step(table, [Change("isr-shrink", "orders-0", 1_700_000_000_000, "ISR 1,2,3 -> 1,2")], problem))
        screen.write(written(console))
        assert "ISR 1,2,3 -> 1,2" in screen.lines[-1]
        assert len(screen.lines) <= _HEIGHT
        assert screen.lines[changed].split()[:1] != before[changed].split()[:1] or problem is not None
    screen.write(written(console))
    assert any("orders-0 " in line for line in screen.lines)


def test_a_view_without_a_table_is_written_again_as_well(console: Console) -> None:
    screen = Screen()
    with LiveView(console) as view:
        for _ in range(3):
            view.show(Step(None, [], "host:1: connection refused"))
            screen.write(written(console))
            assert screen.lines[0] == "no broker answers: host:1: connection refused"
            assert not any(screen.lines[1:])


def test_a_reason_that_changes_is_written_where_there_is_no_table(console: Console) -> None:
    screen = Screen()
    with LiveView(console) as view:
        for reason in ("no answer", "not authorized"):
            view.show(Step(None, [], None, reason))
            screen.write(written(console))
            assert screen.lines[0] == f"the metadata log is not read: {reason}"


def test_the_last_of_very_many_packed_changes_are_shown(console: Console) -> None:
    before = [partition(f"orders-{number}") for number in range(2 * PACKED_FROM)]
    after = [partition(f"orders-{number}", isr=(1, 3)) for number in range(2 * PACKED_FROM)]
    table = table_of(*before)
    change_set = table.apply(look(*after))
    assert change_set is not None
    packed = PackedChanges(change_set, table.layout)
    screen = Screen()
    with LiveView(console) as view:
        view.show(Step(table, [], None, packed=(packed,)))
        screen.write(written(console))
        assert "orders: 500 partitions  isr-shrink: 2 left the ISR" in screen.lines[-1]
        view.show(Step(table, [], None))
        assert len(written(console)) < 500
