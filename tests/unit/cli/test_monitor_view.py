"""The live view: all of it within the screen, the worst on top."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.support.watched import details, partition, snapshot

from barnabas.cli.monitor_view import picture
from barnabas.monitor.changes import Change
from barnabas.monitor.snapshot import Severity
from barnabas.monitor.watch import Step

CHANGES = [Change("isr-shrink", f"orders-{number}", 1_700_000_000_000, f"change {number}") for number in range(30)]


def drawn(step: Step, changes: list[Change], height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=150, height=height, force_terminal=True, color_system=None)
    console.print(picture(step, changes, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("height", [12, 24, 60])
@pytest.mark.parametrize("changes", [[], CHANGES])
def test_it_fits_and_shows_the_worst(height: int, changes: list[Change]) -> None:
    sound = [partition(f"orders-{number}", details=details(b1=5, b2=5, b3=5)) for number in range(40)]
    look = snapshot(*sound, partition("lost-0", leader=-1, isr=()))
    lines = drawn(Step(look, [], None, True), changes, height)
    assert len(lines) <= height
    assert any("lost-0" in line and "offline" in line for line in lines)
    assert "1 offline" in lines[0]
    if height < 40:
        assert any("more, none of them worse" in line for line in lines)
    if changes:
        assert "change 29" in lines[-1]


def test_when_nobody_answers_what_was_seen_last_is_marked() -> None:
    gone = Change("unreachable", "cluster", 1_700_000_000_000, "no broker answers", Severity.CRITICAL)
    lines = drawn(Step(snapshot(partition()), [gone], "host:1: connection refused", True), [gone], 24)
    assert lines[0] == "no broker answers: host:1: connection refused"
    assert lines[1].startswith("as last seen: ")


def test_before_the_first_answer_there_is_only_the_reason() -> None:
    assert drawn(Step(None, [], "host:1: connection refused", True), [], 24) == [
        "no broker answers: host:1: connection refused"
    ]
