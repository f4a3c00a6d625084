"""The page of a run: what it draws, and that it needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from barnabas.cli import entry
from barnabas.simulation.facts import DECIDED, PartitionDecided
from barnabas.simulation.faults import Fault, FaultKind, FaultStep
from barnabas.simulation.scenario import Outcome, Settings
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.timeline import fold
from barnabas.simulation.timeline_page import page_data, page_of
from barnabas.simulation.world import SECOND_US, Note, ProcessState

KILL = Fault(2_000, FaultKind.KILL, "broker1", duration_ms=3_000)
CUT = Fault(3_000, FaultKind.PARTITION, "broker2", "producer1", 9_000)
NASTY = "</script><b>@@DATA@@ & more"


def note(at_s: float, node: str, text: str, fact: object = None) -> Note:
    return Note(round(at_s * SECOND_US), node, text, fact)


def decided(at_s: float, leader: int, isr: tuple[int, ...], text: str) -> Note:
    return note(at_s, DECIDED, f"orders-0: {text}", PartitionDecided("orders-0", leader, 1, isr, (1, 2)))


NOTES = [
    note(0, "broker1", "start number 1", ProcessState.RUNNING),
    note(0, "broker2", "start number 1", ProcessState.RUNNING),
    decided(1, 1, (1, 2), "leader 1"),
    note(2, "broker1", "fault: kill for 3000 ms", FaultStep(KILL, begins=True)),
    note(2, "broker1", "process ended: killed", ProcessState.DEAD),
    decided(2.5, 2, (2,), "leader 2"),
    note(3, "broker2", "fault: partition with producer1 for 9000 ms", FaultStep(CUT, begins=True)),
    note(4, "broker2.1", NASTY),
    note(5, "broker1", "end of kill", FaultStep(KILL, begins=False)),
    note(5, "broker1", "start number 2", ProcessState.RUNNING),
    note(6, "producer2", "gives up"),
    note(8, "checker", "lost: a record"),
]
OUTCOME = Outcome(
    settings=Settings(seed=7, layout=Layout(brokers=2)),
    schedule=(KILL, CUT),
    problems=["lost: a record"],
    trace_hash="",
    events=1,
    virtual_s=8.0,
    cpu_s=1.0,
    sent=1,
    acked=1,
    polled=0,
    unclean=0,
    operated=0,
    rare_events={},
    notes=NOTES,
    courses={"lost: a record": [note(1, "broker1", "appends orders-0@0")]},
)


def in_seconds(spans: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [tuple(v / SECOND_US if k in ("from", "to") else v for k, v in span.items()) for span in spans]  # type: ignore[operator]


def test_the_lanes() -> None:
    data = page_data(OUTCOME, fold(NOTES))
    lanes = {lane["name"]: lane for lane in data["lanes"]}
    assert list(lanes) == ["broker1", "broker2", "producer1", "everything else"]
    assert in_seconds(lanes["broker1"]["states"]) == [(0, 2, "running"), (2, 5, "dead"), (5, 8, "running")]
    assert in_seconds(lanes["broker1"]["faults"]) == [(2, 5, "kill for 3000 ms", "kill", 0)]
    for machine in ("broker2", "producer1"):
        (fault,) = in_seconds(lanes[machine]["faults"])
        assert fault == (3, 8, "partition with producer1 for 9000 ms", "partition", 0), machine
    (orders,) = data["partitions"]
    assert in_seconds(orders["spans"]) == [
        (1, 2.5, 1, False, "leader 1", "1, ISR 1,2", "1"),
        (2.5, 8, 2, True, "leader 2", "2, ISR 2", "2"),
    ]
    assert (data["end_us"], data["problem_us"]) == (8 * SECOND_US, 8 * SECOND_US)


def test_faults_at_the_same_time_are_in_rows() -> None:
    other = KILL._replace(kind=FaultKind.SLOW_DISK)
    notes = [
        note(1, "broker1", "fault: a", FaultStep(KILL, True)),
        note(2, "broker1", "fault: b", FaultStep(other, True)),
    ]
    notes += [note(3, "broker1", "end", FaultStep(KILL, False)), note(4, "broker1", "fault: a", FaultStep(KILL, True))]
    (lane, *_) = page_data(replace(OUTCOME, notes=notes), fold(notes))["lanes"]
    assert [(fault["text"], fault["row"]) for fault in lane["faults"]] == [("a", 0), ("b", 1), ("a", 0)]
    assert lane["rows"] == 2


class Reader(HTMLParser):
    """The content of a page: its elements, the text outside of scripts, and the data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = self.data = ""
        self._in_data = self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [key for key, _ in attrs if key in ("src", "href")]
        self._in_script = tag == "script"
        self._in_data = ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data
        elif not self._in_script:
            self.text += data


def test_a_page_contains_all_and_loads_nothing() -> None:
    page = page_of(OUTCOME, ["two lines", "of <summary>"], "barnabas simulate --seed 7")
    found = Reader(page)
    assert found.links == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\((?!#)", page)
    assert found.tags.count("script") == 2
    assert "b" not in found.tags
    for text in (NASTY, "of <summary>", "barnabas simulate --seed 7", "lost: a record", "appends orders-0@0"):
        assert text in found.text
    assert json.loads(found.data)["problem"] == "lost: a record"
    assert NASTY in json.loads(found.data)["lines"][7]["text"]


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.html"
    arguments = ["simulate", "--seed", "1", "--hours", "0.0003", "--faults", "none", "--producers", "1", "--rate", "2"]
    assert entry.run([*arguments, "--consumers", "0", "--html", str(file)]) == 0
    found = Reader(file.read_text(encoding="utf-8"))
    assert "every guarantee was kept" in found.text
    assert [lane["name"] for lane in json.loads(found.data)["lanes"]] == ["broker1", "everything else"]
    shown = capsys.readouterr().out
    assert "orders-0, orders-1, orders-2: leader 1, ISR 1 of 1, epoch 0" in shown
    assert entry.run([*arguments, "--html", str(tmp_path)]) == 1
    assert entry.run([*arguments, "--html", str(file), "--explore", "2"]) == 1
