"""The live view: it fits on the screen, with the worst problems first."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator

import pytest
from rich.console import Console
from tests.support.watched import changed, details, look, partition, table_of

from barnabas.cli import monitor
from barnabas.cli.monitor import show_table
from barnabas.cli.monitor_view import picture
from barnabas.monitor.changes import Change
from barnabas.monitor.packed_changes import PACKED_FROM, PackedChanges
from barnabas.monitor.severity import Severity
from barnabas.monitor.watch import Step

CHANGES = [Change("isr-shrink", f"orders-{number}", 1_700_000_000_000, f"change {number}") for number in range(30)]


def drawn(step: Step, changes: list[Change], height: int, width: int = 150) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(picture(step, changes, width, height), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("height", [12, 24, 60])
@pytest.mark.parametrize("changes", [[], CHANGES])
def test_it_fits_and_shows_the_worst(height: int, changes: list[Change]) -> None:
    sound = [partition(f"orders-{number}", details=details(b1=5, b2=5, b3=5)) for number in range(40)]
    table = table_of(*sound, partition("lost-0", leader=-1, isr=()))
    lines = drawn(Step(table, [], None), changes, height)
    assert len(lines) <= height
    assert any("lost-0" in line and "offline" in line for line in lines)
    assert "1 offline" in lines[0]
    if height < 40:
        assert any("more, none of them worse" in line for line in lines)
    if changes:
        assert "change 29" in lines[-1]


@pytest.mark.parametrize("every", [False, True])
def test_a_plain_table_lists_internal_partitions_only_where_there_is_something_to_tell(
    capsys: pytest.CaptureFixture[str], every: bool
) -> None:
    sound = [partition(f"__consumer_offsets-{number}") for number in range(50)]
    show_table(table_of(*sound, partition("__consumer_offsets-50", isr=(1,)), partition("orders-0")), every=every)
    printed = capsys.readouterr()
    listed = [line.split()[0] for line in printed.out.splitlines()[2:]]
    if every:
        assert len(listed) == 52
        assert printed.err == ""
    else:
        assert listed == ["__consumer_offsets-50", "orders-0"]
        assert "50 partitions of internal topics, in sync" in printed.err


def test_the_changes_of_a_whole_topic_are_one_line_in_both_views_and_all_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = [partition(f"__consumer_offsets-{number}") for number in range(50)]
    after = [partition(f"__consumer_offsets-{number}", isr=(1, 3)) for number in range(50)]
    step = Step(table_of(*after), changed(look(*before), look(*after)), None)
    shown = [line for line in drawn(step, step.changes, 24) if "isr-shrink" in line]
    assert len(shown) == 1
    assert "__consumer_offsets: 50 partitions  isr-shrink: 2 left the ISR" in shown[0]

    async def steps() -> AsyncIterator[Step]:
        yield step

    asyncio.run(monitor._in_lines(steps(), every=False))
    assert capsys.readouterr().out.count("isr-shrink") == 1
    asyncio.run(monitor._in_json(steps()))
    assert capsys.readouterr().out.count("isr-shrink") == 50


def test_very_many_packed_changes_are_all_in_lines_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{topic}-{number}" for topic in ("orders", "billing", "audit") for number in range(PACKED_FROM // 2)]
    table = table_of(*map(partition, names))
    change_set = table.apply(look(*(partition(name, isr=(1, 3)) for name in names)))
    assert change_set is not None
    step = Step(table, changed(look(partition()), look()), None, packed=(PackedChanges(change_set, table.layout),))

    async def steps() -> AsyncIterator[Step]:
        yield step

    asyncio.run(monitor._in_lines(steps(), every=False))
    lines = [line for line in capsys.readouterr().out.splitlines() if "isr-shrink" in line or "topic-deleted" in line]
    assert len(lines) == 4
    assert "topic-deleted" in lines[0]
    assert [line.split()[2] for line in lines[1:]] == ["audit:", "billing:", "orders:"]
    assert all(f"{PACKED_FROM // 2} partitions  isr-shrink: 2 left the ISR" in line for line in lines[1:])
    asyncio.run(monitor._in_json(steps()))
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["subject"] for each in told if each.get("kind") == "isr-shrink"] == sorted(
        names, key=lambda name: (name.split("-")[0], int(name.split("-")[1]))
    )


LONG = "orders-of-the-whole-year"


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, "partition state leader ISR"),
        (80, "partition state leader ISR lag"),
        (100, "partition state leader replicas ISR size lag"),
        (140, "partition state leader replicas ISR OSR followers size lag"),
    ],
)
def test_a_narrow_terminal_shows_whole_columns_and_distinguishes_partitions(width: int, columns: str) -> None:
    ends = details(b1=50, b2=50, b3=30)
    states = [partition(f"{LONG}-{number}", details=ends, isr=(1, 2)) for number in range(12)]
    told = [Change("isr-shrink", f"{LONG}-3", 1_700_000_000_000, "ISR 1,2,3 -> 1,2, now at min ISR, " + "why " * 12)]
    lines = drawn(Step(table_of(*states), told, None), told, 30, width)
    assert len(lines) <= 30
    assert all(len(line) <= width for line in lines)
    head = next(line for line in lines if "partition " in line and "leader" in line)
    assert head.replace("┃", " ").split() == columns.split()
    rows = [line.split("│")[1:] for line in lines if line.startswith("│")]
    assert [row[0].strip()[-2:].lstrip("-") for row in rows] == sorted((str(number) for number in range(12)), key=int)
    assert all(row[1].strip() == "at min ISR" for row in rows)
    assert "12 at min ISR" in " ".join(" ".join(lines).split())
    assert lines[-1].endswith("why")


def test_the_table_keeps_its_place_while_figures_grow() -> None:
    def with_lag(lag: int) -> list[str]:
        state = partition("orders-0", details=details(b1=lag, b2=0, b3=lag))
        return drawn(Step(table_of(state), [], None), [], 24, 120)

    assert [line.find("│", 20) for line in with_lag(0)] == [line.find("│", 20) for line in with_lag(9_999)]
    assert [len(line) for line in with_lag(0)][1:] == [len(line) for line in with_lag(9_999)][1:]


def test_when_nobody_answers_what_was_seen_last_is_marked() -> None:
    gone = Change("unreachable", "cluster", 1_700_000_000_000, "no broker answers", Severity.CRITICAL)
    lines = drawn(Step(table_of(partition()), [gone], "host:1: connection refused"), [gone], 24)
    assert lines[0] == "no broker answers: host:1: connection refused"
    assert lines[1].startswith("as last seen: ")


def test_before_the_first_answer_there_is_only_the_reason() -> None:
    assert drawn(Step(None, [], "host:1: connection refused"), [], 24) == [
        "no broker answers: host:1: connection refused"
    ]
