"""The work of a task: it turns rows that Spark has classified into files of every table, staged for the commit.

A task has all rows of its days. For each day it looks up the known order ids (also of the days around it that the
watermark covers), writes the new orders and their lines, and adds them to the day's aggregates by reading the current
file and writing the next one. It changes nothing that a reader sees: its files are in the staging directory under
unique names, so that a task that runs again, or twice at the same time, does no harm. It reports its files to the
driver as one row of JSON.

All work is done on columns, by Arrow.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.orders.event import problem
from barnabas.pipelines import tables as t
from barnabas.pipelines.commits import Books, TableFile
from barnabas.pipelines.rules import ALWAYS_US, BROKEN, TOO_LATE, UNREADABLE

SUMMARY_SCHEMA = "summary string"


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The function that Spark's mapInArrow calls. Its fields are plain values, so that it can be sent to any worker."""

    tables: str
    staging: str
    sink: str
    number: int
    #: Two events of an order are one if their days differ by at most this number.
    lookback_days: int
    #: partition -> the first offset that is not in the tables yet.
    next_offsets: Mapping[int, int]
    #: Orders before this time are too late; None if no order is.
    watermark_ms: int | None
    #: (partition, offset) of copies of orders that this batch has under another day, and so in another task.
    copies: frozenset[tuple[int, int]] = frozenset()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return self.files(batches, context.partitionId())

    def files(self, batches: Iterable[pa.RecordBatch], part: int) -> Iterator[pa.RecordBatch]:
        """Yields the summary of the task with number `part`: one row, or none if it has nothing to apply."""
        rows = [batch for batch in (self._not_applied(batch) for batch in batches) if batch.num_rows]
        if not rows:
            return
        work = _Work(self, part)
        work.take(pa.Table.from_batches(rows))
        yield pa.RecordBatch.from_pydict({"summary": [work.summary()]})

    def _not_applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows that no batch of an earlier checkpoint has applied."""
        partitions, offsets = batch["partition"].to_numpy(), batch["offset"].to_numpy()
        first = np.array([self.next_offsets.get(int(each), 0) for each in np.unique(partitions)], dtype=np.int64)
        new = offsets >= first[np.searchsorted(np.unique(partitions), partitions)]
        return batch if new.all() else batch.filter(pa.array(new))


class _Work:
    """The files and counts of one task."""

    def __init__(self, job: DayFiles, part: int) -> None:
        self._job = job
        self._part = part
        self._tables = Path(job.tables)
        self._staging = self._tables / job.staging
        self._staging.mkdir(parents=True, exist_ok=True)
        self._files: list[TableFile] = []
        self._known: dict[str, pa.Array] = {}
        self._books = Books()
        self._seen: dict[int, tuple[int, int]] = {}
        self._event_time_ms: dict[int, int] = {}

    def summary(self) -> str:
        return json.dumps(
            {
                "files": [asdict(file) for file in self._files],
                "books": asdict(self._books),
                "ranges": self._seen,
                "event_time_ms": self._event_time_ms,
            }
        )

    def take(self, rows: pa.Table) -> None:
        self._books += Books(read=rows.num_rows)
        self._note_progress(rows)
        faulty = pc.is_valid(rows["fault"])
        quarantined = [_with_reasons(rows.filter(faulty))]
        by_place = [
            ("day", "ascending"),
            ("order_id", "ascending"),
            ("partition", "ascending"),
            ("offset", "ascending"),
        ]
        for day, those in _by_day(rows.filter(pc.invert(faulty)).sort_by(by_place)):
            quarantined.append(self._take_day(day, those))
        self._quarantine(pa.concat_tables(quarantined))

    def _note_progress(self, rows: pa.Table) -> None:
        seen = rows.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
        for row in seen.to_pylist():
            self._seen[row["partition"]] = (row["offset_min"], row["offset_max"] + 1)
        good = rows.filter(pc.is_null(rows["fault"])).group_by("partition").aggregate([("event_us", "max")])
        for row in good.to_pylist():
            self._event_time_ms[row["partition"]] = row["event_us_max"] // 1000

    def _take_day(self, day: str, rows: pa.Table) -> pa.Table:
        """Processes good events of one day, sorted by order id, partition and offset. Returns those that are too late,
        with their reason. A copy of a known order is a duplicate, even if it is late. A late order that is not known is
        set aside with its copies.
        """
        ids = rows["order_id"].to_numpy()
        known = pc.is_in(rows["order_id"], value_set=self._known_around(day)).to_numpy()
        if self._job.copies:
            places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
            known |= np.array([place in self._job.copies for place in places], dtype=bool)
        floor_us = ALWAYS_US if self._job.watermark_ms is None else self._job.watermark_ms * 1000
        late = ~known & (rows["event_us"].to_numpy() < floor_us)
        candidates = np.flatnonzero(~known & ~late)
        first = candidates[np.unique(ids[candidates], return_index=True)[1]]
        self._books += Books(duplicates=rows.num_rows - len(first) - int(late.sum()))
        if len(first):
            self._write_orders(day, rows.take(pa.array(first)))
        return _with_reason(rows.filter(pa.array(late)), TOO_LATE)

    def _write_orders(self, day: str, rows: pa.Table) -> None:
        rows = rows.append_column("event_time", _times(rows["event_us"]))
        rows = rows.append_column("line_count", pc.list_value_length(rows["lines"]))
        lines = _lines(rows)
        cents = pc.sum(rows["total"]).as_py()
        self._books += Books(orders=rows.num_rows, lines=lines.num_rows, sales_cents=int(cents * 100))
        self._write(t.ORDERS, day, rows)
        self._write(t.ORDER_LINES, day, lines)
        hour = pc.floor_temporal(lines["event_time"], unit="hour")
        self._add(t.REVENUE_BY_STORE_HOUR, day, _sums(t.REVENUE_BY_STORE_HOUR, lines.append_column("hour", hour)))
        self._add(t.HOUSEHOLD_DAILY, day, _sums(t.HOUSEHOLD_DAILY, lines))
        self._add(t.ORDER_IDS, day, rows)

    def _known_around(self, day: str) -> pa.Array:
        middle, reach = date.fromisoformat(day), self._job.lookback_days
        days = [(middle + timedelta(days=n)).isoformat() for n in range(-reach, reach + 1) if _has_day(middle, n)]
        return pa.concat_arrays([self._known_of(each) for each in days])

    def _known_of(self, day: str) -> pa.Array:
        if day not in self._known:
            present = self._present(t.ORDER_IDS, day)
            ids = pa.array([], pa.int64()) if present is None else present[0]["order_id"].combine_chunks()
            self._known[day] = ids
        return self._known[day]

    def _present(self, table: t.Table, day: str) -> tuple[pa.Table, str] | None:
        file = t.current_file(self._tables, table, day)
        if file is None:
            return None
        return pq.ParquetFile(file).read(), str(file.relative_to(self._tables))

    def _add(self, table: t.Table, day: str, rows: pa.Table) -> None:
        """Writes the day's aggregate with these rows added."""
        rows = rows.select(table.schema.names).cast(table.schema)
        present = self._present(table, day)
        if present is None:
            self._write(table, day, rows.sort_by([(key, "ascending") for key in table.keys]))
            return
        before, path = present
        sums = [name for name in table.schema.names if name not in table.keys]
        merged = pa.concat_tables([before.cast(table.schema), rows]).group_by(list(table.keys))
        after = merged.aggregate([(name, "sum") for name in sums])
        after = after.rename_columns([name.removesuffix("_sum") for name in after.column_names])
        self._write(table, day, after.sort_by([(key, "ascending") for key in table.keys]), replaces=path)

    def _quarantine(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        counts = {row["values"]: row["counts"] for row in pc.value_counts(rows["reason"]).to_pylist()}
        self._books += Books(quarantined=counts)
        self._write(t.QUARANTINE, None, rows.append_column("timestamp", _times(rows["timestamp_us"])))

    def _write(self, table: t.Table, day: str | None, rows: pa.Table, replaces: str | None = None) -> None:
        rows = rows.select(table.schema.names).cast(table.schema)
        staged = self._staging / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(rows, staged, compression="zstd")
        size_bytes = _synced_size(staged)
        name = t.file_name(table, self._job.sink, self._job.number, self._part)
        self._files.append(
            TableFile(
                table=table.name,
                staged=f"{self._job.staging}/{staged.name}",
                path=f"{table.directory(day)}/{name}",
                rows=rows.num_rows,
                size_bytes=size_bytes,
                day=day,
                stats=json.dumps({"numRecords": rows.num_rows}),
                replaces=replaces,
            )
        )


def _by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yields slices of rows that are sorted by day."""
    if not rows.num_rows:
        return
    runs = pc.run_end_encode(rows["day"].combine_chunks())
    start = 0
    for end, day in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield day, rows.slice(start, end - start)
        start = end


def _lines(orders: pa.Table) -> pa.Table:
    """Returns one row for each line of the orders, numbered from 1 within each order."""
    lists = orders["lines"].combine_chunks()
    parents = pc.list_parent_indices(lists)
    flat = pc.list_flatten(lists)
    lengths = orders["line_count"].to_numpy()
    numbers = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    of_order = orders.select(["order_id", "customer_id", "store_id", "event_time"]).take(parents)
    columns: dict[str, Any] = dict(zip(of_order.column_names, of_order.columns, strict=True))
    columns["line"] = pa.array(numbers, pa.int32())
    for index, field in enumerate(flat.type):
        columns[field.name] = flat.field(index)
    return pa.table(columns).select(t.ORDER_LINES.schema.names).cast(t.ORDER_LINES.schema)


def _sums(table: t.Table, lines: pa.Table) -> pa.Table:
    """Returns the sums of the lines by the aggregate's keys."""
    wanted = [("order_id", "count_distinct"), ("line", "count"), ("amount", "sum")]
    grouped = lines.group_by(list(table.keys)).aggregate([*wanted, *((name, "sum") for name in t.DISCOUNTS)])
    names = {"order_id_count_distinct": "orders", "line_count": "lines", "amount_sum": "revenue"}
    names |= {f"{name}_sum": name for name in t.DISCOUNTS}
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])


def _with_reasons(rows: pa.Table) -> pa.Table:
    """Adds the reason why each row is refused; for a broken event, `problem` finds the reason."""
    faults, values = rows["fault"].to_pylist(), rows["value"].to_pylist()
    reasons = [
        (problem(value) or UNREADABLE) if fault == BROKEN else fault
        for fault, value in zip(faults, values, strict=True)
    ]
    return rows.append_column("reason", pa.array(reasons, pa.string()))


def _with_reason(rows: pa.Table, reason: str) -> pa.Table:
    return rows.append_column("reason", pa.array([reason] * rows.num_rows, pa.string()))


def _times(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(micros, t.TIME)


def _has_day(middle: date, days: int) -> bool:
    return date.min.toordinal() <= middle.toordinal() + days <= date.max.toordinal()


def _synced_size(file: Path) -> int:
    """Syncs the file to disk, and returns its size."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
