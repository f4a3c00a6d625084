"""Batches of the orders pipeline without Spark: records as its native functions would classify them, passed to the
tasks.

`judged_rows` is a second, slow implementation of `barnabas.pipelines.rules` with `barnabas.orders.event`; a system test
compares the two. `Stream` plays the part of Spark: it cuts records into batches, keeps a checkpoint of its own, and
repeats the batch that was under way when the driver died.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.orders.event import LINE_FIELDS, cents, problem
from barnabas.pipelines.commits import Books, Commit, Progress, TableFile
from barnabas.pipelines.day_files import DayFiles
from barnabas.pipelines.orders import OrdersPipeline, apply_batch
from barnabas.pipelines.rules import BROKEN, TIME_AHEAD

DAY_US = 86_400_000_000
LINE = pa.struct([(line.name, pa.float64() if line.type == "double" else pa.int64()) for line in LINE_FIELDS])
ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_us", pa.int64()),
        ("fault", pa.string()),
        ("event_us", pa.int64()),
        ("value", pa.binary()),
        ("order_id", pa.int64()),
        ("customer_id", pa.int64()),
        ("store_id", pa.int64()),
        ("total", pa.decimal128(14, 2)),
        ("lines", pa.list_(LINE)),
        ("day", pa.string()),
    ]
)

#: An arbitrary commit.
COMMIT = Commit(
    number=1,
    query_id="q",
    batch_id=0,
    started_ms=5,
    recorded_ms=6,
    ranges={0: (0, 3), 7: (2, 9)},
    progress={0: Progress(3, 1000), 7: Progress(9)},
    batch=Books(4, 1, 2, 300, 1, {"not_json": 2}),
    total=Books(4, 1, 2, 300, 1, {"not_json": 2}),
    files=(TableFile("orders", "_staging/1/a.parquet", "orders/day=2017-01-01/1.parquet", 1, 100, "2017-01-01"),),
    staging="_staging/1",
)


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    offset: int
    value: bytes | None
    timestamp_ms: int


def order(order_id: int, time: str, bought: Sequence[tuple[int, int, float]] = ((1, 2, 1.5),), **other: Any) -> bytes:
    """Returns an order's value; `bought` are (product, quantity, amount) of its lines."""
    document = {
        "order_id": order_id,
        "customer_id": order_id % 7,
        "store_id": order_id % 3,
        "event_time": time,
        "lines": [
            dict(zip((line.name for line in LINE_FIELDS), (*line, 0.1, 0.0, 0.0), strict=True)) for line in bought
        ],
        "total": sum(cents(amount) for _, _, amount in bought) / 100,
    }
    return json.dumps(document | other).encode()


def record(partition: int, offset: int, value: bytes | None, time: str = "2017-01-01T00:00:00Z") -> Record:
    return Record(partition, offset, value, int(_moment(time).timestamp() * 1000))


def judged_rows(records: Iterable[Record]) -> pa.Table:
    return pa.Table.from_pylist([_judged(each) for each in records], ROWS)


def _judged(record: Record) -> dict[str, Any]:
    timestamp_us = record.timestamp_ms * 1000
    row: dict[str, Any] = dict.fromkeys(ROWS.names)
    row |= {"key": b"k", "topic": "orders", "partition": record.partition, "offset": record.offset}
    row |= {"timestamp_us": timestamp_us, "value": record.value}
    if problem(record.value) is not None:
        return row | {"fault": BROKEN}
    assert record.value is not None
    document = json.loads(record.value)
    event_us = int(_moment(document["event_time"]).timestamp()) * 1_000_000
    row["event_us"] = event_us
    if event_us > timestamp_us + DAY_US:
        return row | {"fault": TIME_AHEAD}
    row |= {name: document[name] for name in ("order_id", "customer_id", "store_id")}
    row["total"] = pa.scalar(f"{document['total']:.2f}").cast(pa.decimal128(14, 2)).as_py()
    return row | {"lines": document["lines"], "day": document["event_time"][:10]}


def _moment(time: str) -> datetime:
    return datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def run_tasks(records: Sequence[Record], tasks: int, job: DayFiles) -> list[dict[str, Any]]:
    """Runs the job in this many tasks, each with whole days."""
    rows = judged_rows(records)
    places = [zlib.crc32(day.encode()) % tasks if day else n % tasks for n, day in enumerate(rows["day"].to_pylist())]
    summaries = []
    for task in range(tasks):
        mine = rows.filter(pa.array([place == task for place in places]))
        for told in job.files(mine.to_batches(max_chunksize=3), task):
            summaries += [json.loads(text) for text in told["summary"].to_pylist()]
    return summaries


@dataclass(slots=True)
class Stream:
    """Spark's part: an offset log that is written before a batch and a commit log that is written after it."""

    pipeline: OrdersPipeline
    records: Sequence[Record]
    #: The numbers of records of the batches, repeated.
    sizes: Sequence[int] = (3,)
    tasks: int = 2
    position: int = 0
    batch_id: int = 0
    #: The range of the last batch in the offset log, whether it is complete or not.
    planned: tuple[int, int] | None = None
    starts: int = field(default=0)

    def start(self) -> Callable[[], None]:
        """Starts a driver: opens the tables and finds its checkpoint. Returns the function that ends it."""
        self.starts += 1
        lock = self.pipeline.open()
        self._find_checkpoint()
        return lock.release

    def step(self) -> bool:
        """Runs one batch, the previous one again if it was not done. Returns False at the end."""
        if self.planned is None:
            end = min(self.position + self.sizes[self.batch_id % len(self.sizes)], len(self.records))
            if end == self.position:
                return False
            self.planned = (self.position, end)
        begin, end = self.planned
        apply_batch(self.pipeline, self.batch_id, partial(run_tasks, self.records[begin:end], self.tasks))
        self.position, self.batch_id, self.planned = end, self.batch_id + 1, None
        return True

    def run(self) -> None:
        """Runs to the end, in one driver."""
        end = self.start()
        try:
            while self.step():
                pass
        finally:
            end()

    def lose_checkpoint(self) -> None:
        """Removes the checkpoint: the next start reads from the beginning, whatever the tables contain, in other
        batches.
        """
        (self.pipeline.checkpoint / "metadata").unlink(missing_ok=True)
        (self.pipeline.checkpoint / "barnabas.json").unlink(missing_ok=True)
        self.position, self.batch_id, self.planned = 0, 0, None

    def _find_checkpoint(self) -> None:
        metadata = self.pipeline.checkpoint / "metadata"
        if not metadata.exists():
            metadata.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))


def pipeline(directory: Path, sink: str = "parquet", **other: Any) -> OrdersPipeline:
    return OrdersPipeline("orders", directory / "tables", directory / "checkpoint", sink, **other)
