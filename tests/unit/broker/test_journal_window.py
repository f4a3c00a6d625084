"""Changes that wait for the journal: in order, kept until they are written, bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.journal import window as journal_window
from barnabas.journal.events import MetadataChange
from barnabas.journal.window import ChangeWindow
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta


def change(offset: int) -> MetadataChange:
    delta = MetadataDelta(EMPTY_IMAGE)
    return MetadataChange(delta, delta.apply(offset, 1, 0), None)


def three(each: MetadataChange) -> Iterator[str]:
    yield from (f"{each.offset}{part}" for part in "abc")


@pytest.fixture
def window() -> ChangeWindow:
    window = ChangeWindow()
    for offset in (1, 2, 3):
        window.add(change(offset))
    return window


def test_events_come_in_order_and_in_parts(window: ChangeWindow) -> None:
    assert window.draw(three, 4) == ["1a", "1b", "1c", "2a"]
    window.written()
    assert [each.offset for each in window] == [2, 3]
    assert window.draw(three, 4) == ["2b", "2c", "3a", "3b"]
    window.written()
    assert window.draw(three, 4) == ["3c"]
    window.written()
    assert not window


def test_what_is_not_written_is_drawn_again(window: ChangeWindow) -> None:
    assert window.draw(three, 5)[-1] == "2b"
    window.rewind()
    assert window.draw(three, 5) == ["1a", "1b", "1c", "2a", "2b"]
    window.written()
    assert window.draw(three, 2) == ["2c", "3a"]
    window.rewind()
    assert window.draw(three, 9) == ["2c", "3a", "3b", "3c"]


def test_a_full_draw_at_the_end_of_a_change(window: ChangeWindow) -> None:
    assert window.draw(three, 3) == ["1a", "1b", "1c"]
    window.written()
    assert window.draw(three, 3) == ["2a", "2b", "2c"]
    window.rewind()
    assert window.draw(three, 9) == ["2a", "2b", "2c", "3a", "3b", "3c"]


def test_a_predecessor_told_the_second_one_in_part(window: ChangeWindow) -> None:
    window.forget_before(2)
    assert window.draw(three, 3) == ["2a", "2b", "2c"]


def test_the_oldest_goes_when_it_is_full(window: ChangeWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_window, "_CHANGES_MAX", 3)
    assert window.draw(three, 4)[-1] == "2a"
    window.add(change(4))
    assert (window.floor, [each.offset for each in window]) == (1, [2, 3, 4])
    # The request with the first one's events is still under way.
    window.written()
    assert window.draw(three, 2) == ["2b", "2c"]
    window.add(change(5))
    window.add(change(6))
    assert window.floor == 3
    window.rewind()
    assert window.draw(three, 9)[0] == "4a"


def test_a_snapshot_stands_for_what_was_before(window: ChangeWindow) -> None:
    window.draw(three, 4)
    window.begin_after(50)
    assert (list(window), window.floor) == ([], 50)
    window.add(change(51))
    assert window.draw(three, 9) == ["51a", "51b", "51c"]
