"""Pictures: what is drawn, that colour is never alone, and that no text of a cluster becomes markup."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.histories import MINUTE, incident
from tests.support.watched import T0, look, partition, table_of

from barnabas.history import pictures
from barnabas.history.past_table import PastTable
from barnabas.history.pictures import LOOKS, replica_map
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.history.swim_lanes import most_changed, swim_lanes
from barnabas.history.widget import scrubber
from barnabas.monitor.partition_state import Key

#: Okabe and Ito's palette.
SAFE = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    incident(tmp_path / "h.db").close(T0 + 3 * MINUTE)
    with History.open(tmp_path / "h.db") as opened:
        yield opened


def titles(picture: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}title")]


def test_the_map_has_a_cell_for_each_replica(history: History) -> None:
    found = titles(replica_map(history.at(T0 + MINUTE)))
    assert found[0] == "Replicas by broker: 2 partitions, the worst first"
    assert found[1:5] == [
        "a-0 on 1: leader; at min ISR",
        "b-0 on 2: no leader; offline",
        "a-0 on 2: out of sync; at min ISR",
        "a-0 on 3: in sync; at min ISR",
    ]
    assert "broker 2 (gone): 2" in replica_map(history.at(T0 + MINUTE))


def test_colours_are_safe_and_never_alone() -> None:
    assert {look.fill for look in LOOKS} | set(pictures.LEADERS) <= SAFE
    marks = [(look.hatch, look.letter) for look in LOOKS]
    assert len(set(marks)) == len(marks), "without its colour, each look is still another one"


def test_a_large_cluster_is_drawn_in_part(tmp_path: Path) -> None:
    table = PastTable()
    table.apply(look(*(partition(f"t-{index}") for index in range(1_000))))
    drawn = replica_map(table)
    assert "666 partitions, the worst first; 334 more partitions are not drawn" in drawn
    assert drawn.count("<g>") <= pictures.CELLS_MAX + len(LOOKS)


def test_lanes_have_states_ticks_and_gaps(history: History) -> None:
    keys = most_changed(history.events(), 10)
    assert keys == [Key("a", 0), Key("b", 0)]
    found = titles(swim_lanes(history, keys, T0, T0 + 3 * MINUTE))
    assert "2023-11-14T22:13:20.000Z: leader 2, 1 of 1; in sync" in found
    assert "2023-11-14T22:14:20.000Z: leader -1, 1 of 1; offline" in found
    assert "2023-11-14T22:14:20.000Z ISR 1,2,3 -> 1,3, now at min ISR, because unknown" in found


def test_no_name_becomes_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&\"'"
    table = table_of(partition(f"{evil}-0"))
    recorder = Recorder(tmp_path / "h.db", table)
    table.apply(look(partition(f"{evil}-0", isr=(1,)), at_ms=T0 + 10))
    recorder.note_gap(T0 + 11, T0 + 12, evil)
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        shown = history._repr_html_() + history.at(T0)._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    for picture in re.findall(r"<svg.*?</svg>", shown):
        ElementTree.fromstring(picture)


def test_a_notebook_shows_the_moment(history: History) -> None:
    shown = history.at(T0 + MINUTE)._repr_html_()
    assert "2023-11-14T22:14:20.000Z" in shown
    assert "2 partitions: 1 offline, 1 at min ISR" in shown


def test_a_data_frame_has_a_row_for_each_partition(history: History) -> None:
    frame = history.at(T0 + MINUTE).dataframe()
    assert frame[["topic", "partition", "state", "leader", "isr"]].values.tolist() == [
        ["a", 0, "at min ISR", 1, [1, 3]],
        ["b", 0, "offline", -1, [2]],
    ]
    assert frame["size_bytes"].isna().all()


def test_without_widgets_the_scrubber_is_a_page(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    shown = scrubber(history, moments=4)
    html = shown._repr_html_()
    assert html.count("<details") == 4
    assert "2023-11-14T22:14:20.000Z" in html
