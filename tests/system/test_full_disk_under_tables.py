"""The orders pipeline's tables on a real file system that is full: nothing is lost, and the message contains advice.

The tasks run without Spark here, so that every amount of free space can be tried; `spark/test_full_disk.py` also has
Spark's own files on the full disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.order_batches import Record, Stream, order, pipeline, record
from tests.support.small_disk import MEGABYTE, PAGE, mounted

from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.failures import causes, pipeline_error
from barnabas.pipelines.orders import OrdersPipeline
from barnabas.pipelines.query import connect, rows_of
from barnabas.pipelines.tables import TABLES

RECORDS: list[Record] = [
    record(
        number % 2, number // 2, order(number % 9, f"2017-01-0{number % 9 % 3 + 1}T10:00:00Z"), "2017-01-03T00:00:00Z"
    )
    for number in range(12)
] + [record(0, 6, b"{", "2017-01-03T00:00:00Z")]


def contents(made: OrdersPipeline) -> dict[str, Any]:
    connection = connect(made.tables)
    found: dict[str, Any] = {
        table.name: rows_of(connection, f"SELECT * FROM {table.name} ORDER BY ALL") for table in TABLES
    }
    last = CommitLog(made.tables).last()
    assert last is not None
    assert last.total.balanced
    return found | {"books": last.total}


def _failure_of(stream: Stream) -> PipelineError | None:
    """Returns the error that the command would report; None if everything is in the tables."""
    try:
        stream.run()
    except causes() as error:
        failure = pipeline_error(error, stream.pipeline.tables)
        failure.__cause__ = error
        return failure
    return None


@pytest.mark.parametrize(("sink", "kind"), [("parquet", "ext4"), ("delta", "tmpfs")])
def test_with_ever_more_room_it_comes_to_the_same_tables(tmp_path: Path, sink: str, kind: str) -> None:
    """Each start has a little more space than the previous one, and continues where that one ended."""
    straight = pipeline(tmp_path / "straight", sink)
    Stream(straight, RECORDS, sizes=(5,)).run()
    with mounted(kind, tmp_path, 4 * MEGABYTE) as disk:
        made = pipeline(disk.root, sink)
        stream = Stream(made, RECORDS, sizes=(5,))
        failed_in = []
        for pages in range(0, 900, 2):
            disk.leave(pages * PAGE)
            failure = _failure_of(stream)
            if failure is None:
                break
            assert "the disk is full under" in failure.message, repr(failure.__cause__)
            assert "nothing is lost" in (failure.hint or "")
            failed_in.append(stream.batch_id)
        assert len(failed_in) >= 5
        assert len(set(failed_in)) >= 2, failed_in
        assert contents(made) == contents(straight)
        assert not list((made.tables / "_staging").glob("*"))
