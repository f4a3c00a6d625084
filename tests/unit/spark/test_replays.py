"""Replays of the sink: each record passes once, wherever the ranges are cut; no other record is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark import replays, schema
from barnabas.spark.origin import HEADER, origin, prefix
from barnabas.spark.replays import ReplayFilter

Sent = tuple[str, bytes | None]


def _table(rows: list[Sent]) -> Any:
    headers = [[{"key": "own", "value": b"x"}] + ([{"key": HEADER, "value": mark}] if mark else []) for _, mark in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array([value for value, _ in rows]), pa.array(headers, schema.ARROW["headers"])], ["value", "headers"]
    )


def _read(log: list[Sent], cuts: list[int]) -> list[str]:
    """Reads the log in ranges that end at the cuts, each by a task without knowledge of the others."""

    def before(first: int, end: int) -> Iterator[Any]:
        yield _table(log[first:end])

    edges = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    got = []
    for first, end in pairwise(edges):
        got += ReplayFilter(first, before).passed(_table(log[first:end]))["value"].to_pylist()
    return got


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Sent], list[str]]:
    """Draws the records that a few queries leave in one partition: every batch in failed attempts, each cut short, and
    a whole one.
    """
    streams = []
    wanted = []
    for query in range(draw(st.integers(1, 2))):
        sent: list[Sent] = []
        for batch in range(draw(st.integers(1, 4))):
            rows: list[Sent] = []
            for index in range(draw(st.integers(0, 5))):
                value = f"{query}/{batch}/{index}"
                rows.append((value, origin(prefix(f"q{query}", batch, 0), index, None, value.encode())))
            for size in draw(st.lists(st.integers(0, len(rows)), max_size=2)):
                sent += rows[:size]
            sent += rows
            wanted += [value for value, _ in rows]
        streams.append(sent)
    log: list[Sent] = [("plain", None)]
    wanted.append("plain")
    while any(streams):
        chosen = draw(st.sampled_from([stream for stream in streams if stream]))
        log.append(chosen.pop(0))
    return log, sorted(wanted)


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, 60), max_size=4))
def test_every_record_passes_once(log: tuple[list[Sent], list[str]], cuts: list[int]) -> None:
    sent, wanted = log
    assert sorted(_read(sent, cuts)) == wanted


def test_equal_rows_are_no_replays_of_each_other() -> None:
    log: list[Sent] = [("same", origin(prefix("q", 0, 0), index, b"k", b"same")) for index in range(3)]
    assert _read(log + log, []) == ["same"] * 3


def test_rows_in_another_order_are_kept() -> None:
    """The second attempt wrote them in the other order: the copies cannot be matched, so nothing is dropped."""
    first = [("a", origin(prefix("q", 0, 0), 0, None, b"a"))]
    second = [("b", origin(prefix("q", 0, 0), 0, None, b"b")), ("a", origin(prefix("q", 0, 0), 1, None, b"a"))]
    assert sorted(_read([*first, *second], [])) == ["a", "a", "b"]


def test_stragglers_of_a_finished_batch_are_dropped() -> None:
    old, new = (("a", origin(prefix("q", batch, 0), 0, None, b"a")) for batch in (3, 4))
    assert _read([old, new, old], []) == ["a", "a"]
    assert _read([old, new, old], [2]) == ["a", "a"]


def test_headers_of_the_same_name_by_somebody_else_pass() -> None:
    assert _read([("a", b"mine"), ("b", b"a/b/c"), ("c", b"mine")], []) == ["a", "b", "c"]


def test_looking_back_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "LOOK_BACK_RECORDS", 10)
    mark = origin(prefix("q", 0, 0), 0, None, b"a")
    far: list[Sent] = [("a", mark), *[("x", None)] * 20, ("a", mark)]
    near: list[Sent] = [("a", mark), *[("x", None)] * 5, ("a", mark)]
    assert _read(far, [21]).count("a") == 2
    assert _read(near, [6]).count("a") == 1
