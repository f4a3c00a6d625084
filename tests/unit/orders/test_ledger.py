"""The ledger: its entries are read back, a cut line is dropped, one writer at a time, other files are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.orders.errors import OrdersError
from barnabas.orders.ledger import Entry, Ledger, read_ledger

BEGIN: dict[str, Any] = {"begin": {"topic": "orders", "topic_id": "x", "start_offsets": {"0": 5}, "replay": {}}}
ENTRIES = [
    Entry(1, "order", 0, 7, 179, 2),
    Entry(2, "malformed", 0, 8, reason="not_json"),
    Entry(3, "order", 1, 0, 50, 1, found=True),
    Entry(4, "late", 1, 1, 50, 1, again=True),
    Entry(1, "duplicate", 0, 9, 179, 2),
    Entry(5, "oversized", refused="MSG_SIZE_TOO_LARGE"),
]


def written(path: Path, *, end: bool = False) -> Path:
    ledger = Ledger(path)
    ledger.note(BEGIN)
    for entry in ENTRIES:
        ledger.enter(entry)
    if end:
        ledger.note({"end": {"orders": 3}})
    ledger.close()
    return path


def test_what_was_entered_is_read_back(tmp_path: Path) -> None:
    contents = read_ledger(written(tmp_path / "ledger", end=True))
    assert contents.entries == ENTRIES
    assert contents.topic == "orders"
    assert contents.end == {"orders": 3}
    assert contents.end_offsets == {0: 10, 1: 2}
    books = contents.books()
    assert (books.orders, books.lines, books.sales_cents, books.duplicates) == (3, 4, 279, 1)


def test_a_ledger_is_gone_on_with(tmp_path: Path) -> None:
    path = written(tmp_path / "ledger")
    ledger = Ledger(path)
    assert ledger.contents.entries == ENTRIES
    ledger.note({"resumed": {"acknowledged": 6}})
    ledger.enter(Entry(6, "order", 0, 10, 1, 1))
    ledger.close()
    contents = read_ledger(path)
    assert contents.entries == [*ENTRIES, Entry(6, "order", 0, 10, 1, 1)]
    assert contents.resumed == 1


def test_a_cut_line_is_dropped_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for missing in range(1, last + 1):
        path = tmp_path / "cut"
        path.write_bytes(whole[:-missing])
        ledger = Ledger(path)
        assert ledger.contents.entries == ENTRIES[:-1]
        ledger.enter(ENTRIES[-1])
        ledger.close()
        assert path.read_bytes() == whole


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first = Ledger(path)
    with pytest.raises(OrdersError, match="another replay is writing"):
        Ledger(path)
    first.close()
    Ledger(path).close()


@pytest.mark.parametrize("content", [b"name,price\n", b"{}\n", b'{"begin":{}}\n{"order_id":1,"what":2}\n', b"[]\n"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(OrdersError, match="is not a ledger"):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_missing_or_empty_ledger_has_nothing_to_prove(tmp_path: Path) -> None:
    with pytest.raises(OrdersError, match="No such file"):
        read_ledger(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(OrdersError, match="is empty"):
        read_ledger(tmp_path / "empty")


def test_a_full_disk_ends_with_what_to_do_and_what_was_written_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "ledger")
    ledger = Ledger(path)
    write = os.write

    def half_then_full(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full)
        return write(fd, data[: len(data) // 2])

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", half_then_full)
    ledger.enter(Entry(6, "order", 0, 10, 1, 1))
    with pytest.raises(OrdersError, match="No space left") as refused:
        ledger.flush()
    assert "free some space" in (refused.value.hint or "")
    ledger.close()
    monkeypatch.setattr(os, "write", write)
    assert read_ledger(path).entries == ENTRIES
