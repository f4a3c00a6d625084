"""Excerpts: a part of a history as a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.histories import MINUTE, contents, incident
from tests.support.watched import T0

from barnabas.history.errors import HistoryError
from barnabas.history.excerpts import write_excerpt
from barnabas.history.reader import History


def test_an_excerpt_ends_where_it_was_cut_and_has_its_text(tmp_path: Path) -> None:
    incident(tmp_path / "h.db").close(T0 + 3 * MINUTE)
    write_excerpt(tmp_path / "h.db", tmp_path / "part.db", T0, T0 + MINUTE, "the disk of 2")
    with History.open(tmp_path / "part.db") as part, History.open(tmp_path / "h.db") as whole:
        assert part.about == "the disk of 2"
        assert part.span() == (T0, T0 + MINUTE)
        assert contents(part.at(T0 + MINUTE)) == contents(whole.at(T0 + MINUTE))
        with pytest.raises(HistoryError, match="the history ends at"):
            part.at(T0 + 2 * MINUTE)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("part")] == ["part.db"]


def test_a_history_that_is_being_recorded_can_be_cut(tmp_path: Path) -> None:
    recorder = incident(tmp_path / "h.db")
    write_excerpt(tmp_path / "h.db", tmp_path / "part.db", T0, T0 + 3 * MINUTE, "")
    recorder.close()
    with History.open(tmp_path / "part.db") as part, History.open(tmp_path / "h.db") as whole:
        assert part.events() == whole.events()


def test_what_cannot_be_cut_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    incident(tmp_path / "h.db").close(T0 + 3 * MINUTE)
    part = tmp_path / "part.db"
    with pytest.raises(HistoryError, match="nothing is recorded for this period"):
        write_excerpt(tmp_path / "h.db", part, 0, T0 - 1, "")
    with pytest.raises(HistoryError, match="no such file"):
        write_excerpt(tmp_path / "none.db", part, 0, T0, "")
    with pytest.raises(HistoryError):
        write_excerpt(tmp_path / "h.db", tmp_path / "no-folder" / "part.db", T0, T0 + 1, "")
    assert not part.exists()
    part.write_bytes(b"mine")
    with pytest.raises(HistoryError, match="the file already exists"):
        write_excerpt(tmp_path / "h.db", part, T0, T0 + 1, "")
    assert part.read_bytes() == b"mine"
