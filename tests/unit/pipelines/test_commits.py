"""The commit log: one driver, one number, and nothing of another pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.order_batches import COMMIT, Stream, order, pipeline, record

from barnabas.pipelines.commits import CommitLog, Lock
from barnabas.pipelines.errors import PipelineError


def test_a_commit_comes_back_as_it_was_written(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    log.create()
    assert log.last() is None
    written = log.append(COMMIT)
    assert log.last() == log.read(1) == written == replace(COMMIT, recorded_ms=written.recorded_ms)
    assert [each.number for each in log.all()] == [1]


def test_a_number_is_given_once(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    log.create()
    written = log.append(COMMIT)
    with pytest.raises(PipelineError, match="another pipeline is writing to"):
        log.append(replace(COMMIT, query_id="other"))
    assert log.last() == written
    assert [file.name for file in (tmp_path / "_commits").iterdir()] == ["000000000001.json"]


@pytest.mark.parametrize("count", [*range(10), 15, 16, 17, 33])
def test_the_last_commit_is_found_among_any_number(tmp_path: Path, count: int) -> None:
    log = CommitLog(tmp_path)
    log.create()
    for number in range(1, count + 1):
        (tmp_path / "_commits" / f"{number:012}.json").write_text(replace(COMMIT, number=number).to_json())
    last = log.last()
    assert (0 if last is None else last.number) == count
    assert [commit.number for commit in log.all()] == list(range(1, count + 1))


def test_books_balance_only_if_every_record_has_an_end() -> None:
    assert COMMIT.batch.balanced
    assert (COMMIT.batch + COMMIT.batch).quarantined == {"not_json": 4}
    assert not replace(COMMIT.batch, duplicates=0).balanced


def test_the_lock_is_held_by_one(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(PipelineError, match="another pipeline is writing to"):
        Lock(tmp_path)
    lock.release()
    Lock(tmp_path).release()


def test_tables_and_checkpoint_of_something_else_are_refused(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    made.open("topic-id").release()
    Stream(made, [record(0, 0, order(1, "2017-01-01T10:00:00Z"))]).run()
    for other, why in (
        (replace(made, topic="other"), r"the tables in .* are of topic orders, not other"),
        (replace(made, sink="delta"), r"are of --sink parquet, not delta"),
        (replace(made, tables=tmp_path / "new"), r"belongs to other tables than those in"),
        (replace(made, topic="other", tables=tmp_path / "others"), r"the checkpoint .* is of topic orders, not other"),
    ):
        with pytest.raises(PipelineError, match=why):
            other.open("topic-id")
    with pytest.raises(PipelineError, match="of an earlier topic orders, which has been deleted"):
        made.open("id of a later one")
    made.open("topic-id").release()


def test_a_checkpoint_of_another_stream_is_refused(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    made.checkpoint.mkdir()
    (made.checkpoint / "metadata").write_text('{"id": "x"}')
    with pytest.raises(PipelineError, match="belongs to another pipeline"):
        made.open()
