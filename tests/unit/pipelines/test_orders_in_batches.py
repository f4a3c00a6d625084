"""Several copies of an order: which one counts, what is too late, and the numbers in the commit."""

from __future__ import annotations

from pathlib import Path

from tests.support.order_batches import Record, Stream, order, pipeline, record

from barnabas.pipelines.commits import Books, CommitLog, Progress
from barnabas.pipelines.orders import DAY_MS, OrdersPipeline, watermark_of
from barnabas.pipelines.query import connect, table_counts


def run(made: OrdersPipeline, *batches: list[Record]) -> Books:
    records = [each for batch in batches for each in batch]
    Stream(made, records, sizes=[len(batch) for batch in batches], tasks=3).run()
    last = CommitLog(made.tables).last()
    assert last is not None
    assert last.total.balanced
    return last.total


def ids(made: OrdersPipeline) -> list[tuple[int, int, int]]:
    return connect(made.tables).sql('SELECT order_id, "partition", "offset" FROM orders ORDER BY ALL').fetchall()


def test_the_first_copy_in_the_log_is_the_order(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    copy = order(7, "2017-01-01T10:00:00Z")
    books = run(made, [record(0, 5, copy), record(0, 4, copy)], [record(0, 6, copy)])
    assert ids(made) == [(7, 0, 4)]
    assert (books.orders, books.duplicates) == (1, 2)


def test_a_copy_of_another_day_is_one_order_if_the_days_are_near(tmp_path: Path) -> None:
    """No task sees both in one batch; in two batches the order's id is known."""
    first, second, third = (order(7, f"2017-01-{day:02}T10:00:00Z") for day in (1, 2, 3))
    together = pipeline(tmp_path / "together")
    books = run(together, [record(0, 0, first, T), record(0, 1, second, T), record(0, 2, third, T)])
    assert (books.orders, books.duplicates) == (1, 2)
    apart = pipeline(tmp_path / "apart")
    assert run(apart, [record(0, 0, first, T)], [record(0, 1, second, T), record(0, 2, third, T)]) == books
    assert ids(apart) == ids(together) == [(7, 0, 0)]


T = "2017-01-09T00:00:00Z"


def test_an_id_that_comes_again_long_after_is_another_order(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    first, second = order(7, "2017-01-01T10:00:00Z"), order(7, "2017-01-08T10:00:00Z")
    assert run(made, [record(0, 0, first, T), record(0, 1, second, T)]).orders == 2


def test_what_is_too_late_is_set_aside_and_a_late_copy_of_a_known_order_is_a_duplicate(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    known, late = order(1, "2017-01-01T10:00:00Z"), order(2, "2017-01-01T10:00:00Z")
    now = order(3, "2017-01-20T10:00:00Z")
    day = "2017-01-20T10:00:00Z"
    books = run(
        made,
        [record(0, 0, known), record(0, 1, now, day)],
        [record(0, 2, late, day), record(0, 3, known, day), record(0, 4, late, day)],
    )
    assert (books.orders, books.duplicates, dict(books.quarantined)) == (2, 1, {"too_late": 2})
    rows = connect(made.tables).sql('SELECT reason, topic, "partition", "offset", value FROM quarantine ORDER BY ALL')
    assert rows.fetchall() == [("too_late", "orders", 0, 2, late), ("too_late", "orders", 0, 4, late)]


def test_late_orders_within_the_watermark_update_their_hour(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    first, late = (order(n, "2017-01-01T10:30:00Z", [(1, 1, 2.5)]) for n in (3, 6))
    now = order(9, "2017-01-02T10:00:00Z")
    run(made, [record(0, 0, first), record(0, 1, now, T)], [record(0, 2, late, T)])
    rows = connect(made.tables).sql(
        "SELECT day::TEXT, orders, lines, revenue::TEXT FROM revenue_by_store_hour ORDER BY ALL"
    )
    assert rows.fetchall() == [("2017-01-01", 2, 2, "5.00"), ("2017-01-02", 1, 1, "1.50")]


def test_the_watermark_waits_for_the_slowest_partition() -> None:
    progress = {0: Progress(5, 40 * DAY_MS), 1: Progress(5, 10 * DAY_MS), 2: Progress(5, None)}
    assert watermark_of(progress, DAY_MS) == 9 * DAY_MS
    assert watermark_of({2: Progress(5, None)}, DAY_MS) is None


def test_an_order_from_the_future_does_not_move_the_watermark(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    books = run(
        made,
        [record(0, 0, order(1, "2031-01-01T10:00:00Z")), record(0, 1, b"\xff")],
        [record(0, 2, order(2, "2017-01-01T10:00:00Z"))],
    )
    assert (books.orders, dict(books.quarantined)) == (1, {"not_utf8": 1, "time_ahead": 1})


def test_the_counts_for_the_proof_come_from_the_rows(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    value = order(4, "2017-01-01T10:00:00Z", [(1, 1, 2.25), (2, 3, 0.3)])
    run(made, [record(0, 0, value), record(0, 1, value), record(0, 2, b"{")])
    counts = table_counts(made.tables)
    assert dict(counts.order_rows) == {4: 1}
    assert (counts.lines, counts.sales_cents, counts.quarantined, counts.duplicates_removed) == (
        2,
        255,
        {"not_json": 1},
        1,
    )
