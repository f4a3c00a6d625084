"""Excerpts: a part of a history as a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.histories import MINUTE, contents, hour_of_sizes, incident
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


def test_every_moment_of_an_excerpt_has_its_sizes(tmp_path: Path) -> None:
    """Full samples are rare: the period begins between two of them, and nothing but sizes changes in it."""
    file = tmp_path / "h.db"
    hour_of_sizes(file)
    for first in range(2, 58):
        part = tmp_path / f"part-{first}.db"
        write_excerpt(file, part, T0 + first * MINUTE, T0 + (first + 2) * MINUTE, "")
        with History.open(part) as found:
            moments = [found.at(T0 + (first + more) * MINUTE) for more in range(3)]
        assert [each.state(0).size_bytes for each in moments] == [first, first + 1, first + 2]


def test_an_excerpt_of_a_file_that_was_cut_off_has_what_is_left(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    incident(file).close(T0 + 3 * MINUTE)
    data = file.read_bytes()
    for kept in range(len(data) - 4_096, 0, -4_096):
        file.write_bytes(data[:kept])
        try:
            with History.open(file) as whole:
                end_ms = whole.span()[1]
                state = contents(whole.at(end_ms))
        except HistoryError:
            break
        part = tmp_path / f"part-{kept}.db"
        write_excerpt(file, part, T0, end_ms, "")
        with History.open(part) as found:
            assert found.problem is None
            assert contents(found.at(end_ms)) == state
    assert list(tmp_path.glob("part-*")), "something can be read of a file without its last page"
    assert not list(tmp_path.glob("*-rest"))


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
