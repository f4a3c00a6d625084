"""Queries while a batch is being published see it completely or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.order_batches import Stream, order, pipeline, record

from barnabas.pipelines import query, steps

SQL = """SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM order_lines) AS lines,
 (SELECT sum(orders) FROM household_daily) AS household, (SELECT sum(orders) FROM revenue_by_store_hour) AS hourly"""
RECORDS = [
    record(0, number, order(number, f"2017-01-0{number % 3 + 1}T10:00:00Z"), "2017-01-03T00:00:00Z")
    for number in range(8)
]


@pytest.fixture(autouse=True)
def _no_hook_left() -> Iterator[None]:
    before = steps.reached
    yield
    steps.reached = before


def test_a_batch_is_seen_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pipeline(tmp_path)
    stream = Stream(made, RECORDS, sizes=(4,))
    end = stream.start()
    stream.step()
    found: list[dict[str, Any]] = []
    tried = threading.Event()
    asker = threading.Thread(target=lambda: found.extend(query.run(made.tables, SQL).to_pylist()))
    sleep = SimpleNamespace(sleep=lambda _: tried.wait(0.01) or tried.set())  # type: ignore[func-returns-value]
    monkeypatch.setattr(query, "time", sleep)

    def reached(step: str) -> None:
        if step == "moved" and not asker.is_alive() and not tried.is_set():
            asker.start()
            assert tried.wait(30), "it took half a batch for the whole"

    steps.reached = reached
    try:
        stream.step()
    finally:
        end()
    asker.join(30)
    assert found == [{"orders": 8, "lines": 8, "household": 8, "hourly": 8}]


def test_a_batch_that_stays_unfinished_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def reached(step: str) -> None:
        if step == "recorded":
            raise Died

    made = pipeline(tmp_path)
    steps.reached = reached
    with pytest.raises(Died):
        Stream(made, RECORDS, sizes=(4,)).run()
    pauses: list[float] = []
    monkeypatch.setattr(query, "time", SimpleNamespace(sleep=pauses.append))
    [row] = query.run(made.tables, SQL).to_pylist()
    assert row["orders"] == 0
    assert len(pauses) == 29
