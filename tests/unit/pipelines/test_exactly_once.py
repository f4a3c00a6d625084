"""The orders pipeline's tables are the same however often, and at whichever step, its driver dies."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.order_batches import Record, Stream, order, pipeline, record

from barnabas.pipelines import steps
from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.orders import OrdersPipeline
from barnabas.pipelines.publishing import app_id
from barnabas.pipelines.query import connect, rows_of
from barnabas.pipelines.tables import TABLES

RECORDS = [
    record(0, 0, order(1, "2017-01-01T10:00:00Z")),
    record(1, 0, order(2, "2017-01-01T11:00:00Z", [(1, 1, 2.25), (2, 3, 0.0)])),
    record(0, 1, order(1, "2017-01-01T10:00:00Z")),
    record(1, 1, b'{"order_id": 3, '),
    record(0, 2, order(4, "2017-01-02T00:00:00Z"), "2017-01-02T00:00:00Z"),
    record(1, 2, order(2, "2017-01-01T11:00:00Z", [(1, 1, 2.25), (2, 3, 0.0)])),
    record(0, 3, order(5, "2017-01-01T23:59:59Z")),
    record(1, 3, None),
]
SINKS = ("parquet", "delta")


class Killed(BaseException):
    """The end of the driver, raised by a test."""


@pytest.fixture(autouse=True)
def _no_killer_left() -> Iterator[None]:
    before = steps.reached
    yield
    steps.reached = before


def kill_at(wanted: int) -> None:
    """Kills the driver at the wanted-th step from now, and at none after it."""
    numbers = itertools.count()

    def reached(step: str) -> None:
        assert step in steps.STEPS
        if next(numbers) == wanted:
            raise Killed(step)

    steps.reached = reached


def contents(made: OrdersPipeline) -> dict[str, Any]:
    """Returns every row of every table, and the books."""
    connection = connect(made.tables)
    found: dict[str, Any] = {}
    for table in TABLES:
        rows = rows_of(connection, f"SELECT * FROM {table.name} ORDER BY ALL")
        found[table.name] = rows
    last = CommitLog(made.tables).last()
    assert last is not None
    return found | {"books": last.total, "progress": last.progress}


def straight(directory: Path, sink: str) -> dict[str, Any]:
    made = pipeline(directory / "straight", sink)
    Stream(made, RECORDS).run()
    return contents(made)


@pytest.mark.parametrize("sink", SINKS)
def test_the_tables_of_a_run_without_trouble(tmp_path: Path, sink: str) -> None:
    found = straight(tmp_path, sink)
    assert [row[0] for row in found["orders"]] == [1, 2, 4, 5]
    assert len(found["order_lines"]) == 5
    assert [row[0] for row in found["quarantine"]] == ["no_value", "not_json"]
    books = found["books"]
    assert (books.read, books.orders, books.duplicates, books.lines, books.sales_cents) == (8, 4, 2, 5, 675)
    assert sum(row[2] for row in found["revenue_by_store_hour"]) == 4
    assert sum(row[4] for row in found["revenue_by_store_hour"]) * 100 == 675
    assert sum(row[1] for row in found["household_daily"]) == 4


@pytest.mark.parametrize("sink", ["parquet", pytest.param("delta", marks=pytest.mark.full)])
def test_a_driver_killed_at_any_step_leaves_the_same_tables(tmp_path: Path, sink: str) -> None:
    """Every step of every batch, one after the other."""
    wanted = straight(tmp_path, sink)
    killed = []
    for number in itertools.count():
        made = pipeline(tmp_path / str(number), sink)
        stream = Stream(made, RECORDS, sizes=(4,))
        kill_at(number)
        try:
            stream.run()
        except Killed as kill:
            killed.append(str(kill))
            stream.run()
        assert contents(made) == wanted, f"killed at {killed[-1:]}, number {number}"
        assert not (made.tables / "_staging").exists() or not list((made.tables / "_staging").iterdir())
        if len(killed) <= number:
            break
    every = set(steps.STEPS) - ({"published"} if sink == "parquet" else set())
    assert set(killed) == every


@pytest.mark.parametrize("sink", SINKS)
def test_a_driver_that_is_killed_again_and_again_comes_to_the_same_tables(tmp_path: Path, sink: str) -> None:
    wanted = straight(tmp_path, sink)
    made = pipeline(tmp_path, sink)
    stream = Stream(made, RECORDS, sizes=(4,))
    for lives in itertools.count():
        kill_at(lives)
        try:
            stream.run()
        except Killed:
            continue
        break
    assert stream.starts > 5
    assert contents(made) == wanted


@pytest.mark.parametrize("sink", SINKS)
def test_a_lost_checkpoint_brings_nothing_twice_and_loses_nothing(tmp_path: Path, sink: str) -> None:
    """The new one has other ids, other borders, and reads from the beginning."""
    wanted = straight(tmp_path, sink)
    made = pipeline(tmp_path, sink)
    stream = Stream(made, RECORDS, sizes=(3, 2))
    end = stream.start()
    stream.step()
    stream.step()
    end()
    stream.lose_checkpoint()
    stream.sizes = (4, 1)
    stream.run()
    assert contents(made) == wanted


# A failure is raised immediately: each attempt costs files, and shrinking many of them.
@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_cuts_kills_and_lost_checkpoints(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("orders")
    records: list[Record] = []
    offsets = [0, 0, 0]
    for _ in range(data.draw(st.integers(1, 25), "records")):
        partition = data.draw(st.integers(0, 2))
        day = data.draw(st.integers(1, 3))
        value = data.draw(
            st.one_of(st.just(b"{"), st.integers(1, 8).map(lambda n: order(n, f"2017-01-0{n % 3 + 1}T12:00:00Z")))
        )
        records.append(record(partition, offsets[partition], value, f"2017-01-0{day}T12:00:00Z"))
        offsets[partition] += data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    made = pipeline(directory, data.draw(st.sampled_from(SINKS[:1] * 3 + SINKS[1:])))
    stream = Stream(made, records, sizes=sizes, tasks=data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(0, 3), "kills")):
        kill_at(data.draw(st.integers(0, 30)))
        try:
            stream.run()
        except Killed:
            if data.draw(st.booleans()):
                stream.lose_checkpoint()
    steps.reached = lambda _: None  # type: ignore[assignment]
    stream.run()
    found = contents(made)
    good = {json.loads(each.value or b"")["order_id"] for each in records if each.value != b"{" and not _ahead(each)}
    books = found["books"]
    assert books.balanced
    assert books.read == len(records)
    late = {row[3:5] for row in found["quarantine"] if row[0] == "too_late"}
    assert {row[0] for row in found["orders"]} <= good
    assert len(found["orders"]) == len({row[0] for row in found["orders"]}) == books.orders
    assert late or {row[0] for row in found["orders"]} == good
    assert sum(row[1] for row in found["household_daily"]) == books.orders


def _ahead(each: Record) -> bool:
    assert each.value is not None
    return (
        str(json.loads(each.value or b"{}")["event_time"])[:10]
        > f"2017-01-0{each.timestamp_ms // 86_400_000 - 17167 + 2}"
    )


def test_a_checkpoint_ahead_of_the_tables_is_refused(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    stream = Stream(made, RECORDS, sizes=(2,))
    end = stream.start()
    for _ in range(3):
        stream.step()
    newest = sorted((made.tables / "_commits").iterdir())[-2:]
    for file in newest:
        file.unlink()
    with pytest.raises(PipelineError, match=r"at batch 3, the tables .* at 0: the tables are an older copy"):
        stream.step()
    end()


def test_delta_commits_carry_the_batch_bound_to_its_checkpoint_and_its_offsets(tmp_path: Path) -> None:
    made = pipeline(tmp_path, "delta")
    Stream(made, RECORDS, sizes=(8,)).run()
    commit = CommitLog(made.tables).last()
    assert commit is not None
    delta = DeltaTable(str(made.tables / "orders"))
    assert delta.transaction_version(app_id(commit)) == commit.batch_id == 0
    newest = delta.history(1)[0]
    assert json.loads(newest["barnabas.offsets"]) == {"0": [0, 4], "1": [0, 4]}
    assert newest["barnabas.commit"] == "1"


def test_an_aggregate_of_a_delta_table_has_one_file_for_each_day(tmp_path: Path) -> None:
    made = pipeline(tmp_path, "delta")
    Stream(made, RECORDS, sizes=(1,)).run()
    delta = DeltaTable(str(made.tables / "household_daily"))
    assert len(delta.file_uris()) == 2
    assert delta.version() > 2
