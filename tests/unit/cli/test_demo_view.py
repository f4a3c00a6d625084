"""The demo's live view: lines stay at the top, and bars and partitions fit, however narrow the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from tests.support.watched import details, partition

from barnabas.cli.demo_view import View
from barnabas.monitor.changes import Change

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_bars_and_partitions_fit_and_lines_stay(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, soft_wrap=True)
    look = [partition(f"orders-{number}", details=details(b1=5, b2=5, b3=5)) for number in range(6)]
    with View(console, 20_000) as view:
        view.phase("orders flow, and this phase has a name that is longer than any terminal of sixty columns is wide")
        view.show(4961, 3171, look)
        view.change(Change("broker-gone", "broker 1", 1_700_000_000_000, "is gone"))
        view.phase("the end")
    assert isinstance(console.file, io.StringIO)
    lines = [_CONTROL.sub("", line) for line in re.split(r"[\r\n]+", console.file.getvalue())]
    table = [line for line in lines if line.startswith(("┃", "│", "└"))]
    assert table
    assert all(len(line) <= width for line in lines)
    rows = [line for line in table if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows[:6]] == [f"orders-{number}" for number in range(6)]
    assert any("4,961" in line for line in lines)
    assert any("3,171" in line for line in lines)
    assert any(line.endswith(" s  the end") for line in lines)
    assert sum("broker-gone: is gone" in line for line in lines) == 1
