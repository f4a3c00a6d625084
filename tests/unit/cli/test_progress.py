"""Progress bars leave space for the figures next to them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from barnabas.cli import output
from barnabas.cli.orders import _lag
from barnabas.orders.replay import Progress


@pytest.mark.parametrize("width", [80, 120])
def test_all_figures_of_a_replay_are_shown(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "stderr", console)
    now = Progress(in_flight=3, event_time_ms=1_487_025_600_000, behind_s=11.2)
    with output.progress("orders") as progress:
        task = progress.add_task("orders", total=155_848, completed=40_296, rate="")
        text = f"2,513/s, {_lag(now, with_day=not output.is_narrow())}"
        progress.update(task, rate=text, refresh=True)
    assert isinstance(console.file, io.StringIO)
    shown = next(line for line in console.file.getvalue().splitlines() if "2,513/s" in line)
    assert "40296/155848 orders 2,513/s, 3 in flight" in shown
    assert "11.2 s behind" in shown
    assert ("at 2017-02-13" in shown) == (width == 120)
    assert "…" not in shown
