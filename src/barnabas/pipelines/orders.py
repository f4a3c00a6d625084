"""The orders pipeline: turns a topic of order events into tables, each event once, whichever process crashes when.

    with spark_session(...) as spark:
        pipeline = OrdersPipeline(topic="orders", tables=Path("tables"))
        query = pipeline.start(spark, {"kafka.bootstrap.servers": "127.0.0.1:9092"})
        query.awaitTermination()

It is one stream, with one Spark job for each micro-batch. Native functions parse and classify the orders (`rules`);
tasks write the files of their days (`day_files`); the driver receives their names and figures, writes one commit to the
log (`commits`), and moves the files to their final paths (`publishing`).
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.pipelines import steps
from barnabas.pipelines.commits import (
    Books,
    Commit,
    CommitLog,
    Identity,
    Lock,
    Progress,
    TableFile,
    identity_of_checkpoint,
    identity_of_tables,
)
from barnabas.pipelines.copies import copies_across_days
from barnabas.pipelines.day_files import SUMMARY_SCHEMA, DayFiles
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.publishing import check_visible, create_tables, finish
from barnabas.pipelines.rules import classified

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DAY_MS = 86_400_000
DEFAULT_WATERMARK_MS = 2 * DAY_MS
AVAILABLE_NOW = "available-now"


@dataclass(frozen=True, slots=True)
class OrdersPipeline:
    """The orders' topic and their tables. `watermark_ms`: the greatest delay with which an order still counts."""

    topic: str
    tables: Path
    checkpoint: Path
    sink: str = "parquet"
    watermark_ms: int = DEFAULT_WATERMARK_MS
    source: str = "barnabas"

    def start(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        trigger: str = AVAILABLE_NOW,
        topic_id: str | None = None,
    ) -> StreamingQuery:
        """Starts the stream. `options` are the source's; the tables determine the offsets from which it starts.

        Raises:
            PipelineError: the tables or the checkpoint belong to something else, or another pipeline writes to them.
        """
        lock = self.open(topic_id)
        try:
            last = CommitLog(self.tables).last()
            reader = spark.readStream.format(self.source).options(**self._start_at(last, options))
            writer = reader.load().writeStream.foreachBatch(Batches(self)).queryName(f"orders of {self.topic}")
            writer = writer.option("checkpointLocation", str(self.checkpoint))
            query = writer.trigger(**trigger_options(trigger)).start()
        except BaseException:
            lock.release()
            raise
        _HELD[query.runId] = lock
        return query

    def open(self, topic_id: str | None = None) -> Lock:
        """Locks the tables, and completes the commit that the previous driver left incomplete.

        Raises:
            PipelineError: the tables or the checkpoint belong to something else, or another pipeline writes to them.
        """
        log = CommitLog(self.tables)
        log.create()
        lock = Lock(self.tables)
        try:
            self._identify(topic_id)
            finish(self.tables, log.last(), self.sink)
            log.clear_staging()
            create_tables(self.tables, self.sink)
        except BaseException:
            lock.release()
            raise
        return lock

    def _identify(self, topic_id: str | None) -> None:
        """Checks that the tables, the checkpoint and the topic belong together."""
        there = Identity.read(identity_of_tables(self.tables))
        if there is None:
            there = Identity(uuid.uuid4().hex, self.topic, topic_id, self.sink)
            there.write(identity_of_tables(self.tables))
        _check_same(f"the tables in {self.tables} are", there, self, topic_id, "choose another directory with --tables")
        before = Identity.read(identity_of_checkpoint(self.checkpoint))
        if before is None:
            if (self.checkpoint / "metadata").exists():
                raise PipelineError(
                    f"the checkpoint {self.checkpoint} belongs to another pipeline",
                    "choose another one with --checkpoint",
                )
            there.write(identity_of_checkpoint(self.checkpoint))
            return
        _check_same(
            f"the checkpoint {self.checkpoint} is", before, self, topic_id, "choose another one with --checkpoint"
        )
        if before.id != there.id:
            raise PipelineError(
                f"the checkpoint {self.checkpoint} belongs to other tables than those in {self.tables}",
                "a checkpoint is useless without its tables: remove it, and the stream continues where the tables end",
            )

    def _start_at(self, last: Commit | None, options: Mapping[str, str]) -> dict[str, str]:
        """Returns options that start a new checkpoint where the tables end. Spark prefers an existing checkpoint."""
        chosen = {"startingOffsets": "earliest", **options, "subscribe": self.topic}
        if last is not None:
            offsets = {str(partition): progress.next_offset for partition, progress in last.progress.items()}
            chosen["startingOffsets"] = json.dumps({self.topic: offsets})
        return chosen


#: A lock is held as long as the process of its query exists, and protects against a second query.
_HELD: dict[Any, Lock] = {}


def release(query: StreamingQuery) -> None:
    """Releases the lock of a query that has ended, so that another query can write to its tables."""
    lock = _HELD.pop(query.runId, None)
    if lock is not None:
        lock.release()


@dataclass(frozen=True, slots=True)
class Batches:
    """The function that Spark calls for each micro-batch. Its fields are plain values, because Spark Connect runs it in
    its server.
    """

    pipeline: OrdersPipeline

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        apply_batch(self.pipeline, batch_id, partial(_run, batch))


def _run(batch: DataFrame, job: DayFiles) -> list[dict[str, Any]]:
    """Runs the batch's only Spark job, and returns the summary of each task."""
    shuffle_partitions = int(batch.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
    rows = classified(batch, shuffle_partitions, job.watermark_ms)
    return [json.loads(row.summary) for row in rows.mapInArrow(job, SUMMARY_SCHEMA).collect()]


def apply_batch(
    pipeline: OrdersPipeline, batch_id: int, run: Callable[[DayFiles], list[dict[str, Any]]]
) -> Commit | None:
    """Applies one batch to the tables, and returns its commit; None, and nothing done, if it was applied before. `run`
    writes its files, at most twice.

    Raises:
        PipelineError: the checkpoint is ahead of the tables, another driver writes to them, or files are missing.
    """
    started_ms = time.time_ns() // 1_000_000
    log = CommitLog(pipeline.tables)
    last = log.last()
    finish(pipeline.tables, last, pipeline.sink)
    query_id = _query_id(pipeline.checkpoint)
    if is_applied(last, query_id, batch_id, pipeline):
        return None
    number = 1 if last is None else last.number + 1
    staging = log.staging(number)
    (pipeline.tables / staging).mkdir(parents=True)
    progress = {} if last is None else last.progress
    job = DayFiles(
        str(pipeline.tables),
        staging,
        pipeline.sink,
        number,
        lookback_days=-(-pipeline.watermark_ms // DAY_MS),
        next_offsets={partition: each.next_offset for partition, each in progress.items()},
        watermark_ms=watermark_of(progress, pipeline.watermark_ms),
    )
    summaries = run(job)
    copies = copies_across_days(pipeline.tables, summaries, job.lookback_days)
    if copies:
        shutil.rmtree(pipeline.tables / staging)
        (pipeline.tables / staging).mkdir()
        summaries = run(replace(job, copies=copies))
    steps.reached("computed")
    commit = _commit(last, summaries, number, query_id, batch_id, started_ms, staging)
    check_visible(pipeline.tables, commit)
    commit = log.append(commit)
    steps.reached("recorded")
    finish(pipeline.tables, commit, pipeline.sink)
    steps.reached("finished")
    return commit


def is_applied(last: Commit | None, query_id: str, batch_id: int, pipeline: OrdersPipeline) -> bool:
    """Returns whether the batch is already in the tables: the driver crashed before Spark knew.

    Raises:
        PipelineError: the checkpoint is ahead of the tables.
    """
    if last is None or last.query_id != query_id:
        return False
    if batch_id > last.batch_id + 1:
        raise PipelineError(
            f"the checkpoint {pipeline.checkpoint} is at batch {batch_id}, the tables in {pipeline.tables} "
            f"at {last.batch_id}: the tables are an older copy",
            "remove the checkpoint, and the stream continues where the tables end",
        )
    return batch_id <= last.batch_id


def watermark_of(progress: Mapping[int, Progress], delay_ms: int) -> int | None:
    """Returns the watermark of event time. The slowest partition counts, so that one that had no leader for a while is
    not late.
    """
    times = [each.event_time_ms for each in progress.values() if each.event_time_ms is not None]
    return min(times) - delay_ms if times else None


def trigger_options(trigger: str) -> dict[str, Any]:
    """Returns Spark's options for available-now, or for an interval as Spark writes it ("1 second")."""
    return {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}


def _commit(
    last: Commit | None,
    summaries: Iterable[Mapping[str, Any]],
    number: int,
    query_id: str,
    batch_id: int,
    started_ms: int,
    staging: str,
) -> Commit:
    """Merges the tasks' summaries into one commit. No two of them can have replaced the same day."""
    files: list[TableFile] = []
    books = Books()
    ranges: dict[int, tuple[int, int]] = {}
    progress = {} if last is None else dict(last.progress)
    for summary in summaries:
        files += [TableFile(**file) for file in summary["files"]]
        books += Books(**summary["books"])
        for key, (first, end) in summary["ranges"].items():
            present = ranges.get(int(key), (first, end))
            ranges[int(key)] = (min(first, present[0]), max(end, present[1]))
        for key, time_ms in summary["event_time_ms"].items():
            _advance(progress, int(key), 0, time_ms)
    for partition, (_, end) in ranges.items():
        _advance(progress, partition, end, None)
    assert len({file.path for file in files}) == len(files), "two tasks had rows of the same day"
    assert books.balanced, books
    total = books if last is None else last.total + books
    batch = (number, query_id, batch_id, started_ms, 0)
    return Commit(*batch, ranges, progress, books, total, tuple(files), staging)


def _advance(progress: dict[int, Progress], partition: int, offset: int, time_ms: int | None) -> None:
    before = progress.get(partition, Progress(0))
    times = [each for each in (before.event_time_ms, time_ms) if each is not None]
    progress[partition] = Progress(max(before.next_offset, offset), max(times, default=None))


def _query_id(checkpoint: Path) -> str:
    """Returns the id that Spark assigned to the query and stores in its checkpoint."""
    query_id: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return query_id


def _check_same(what: str, there: Identity, pipeline: OrdersPipeline, topic_id: str | None, hint: str) -> None:
    if there.topic != pipeline.topic:
        raise PipelineError(f"{what} of topic {there.topic}, not {pipeline.topic}", hint)
    if there.sink != pipeline.sink:
        raise PipelineError(f"{what} of --sink {there.sink}, not {pipeline.sink}", f"continue with that, or {hint}")
    if None not in (there.topic_id, topic_id) and there.topic_id != topic_id:
        raise PipelineError(
            f"{what} of an earlier topic {there.topic}, which has been deleted",
            f"to read the new one, {hint}",
        )
