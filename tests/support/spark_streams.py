"""A stream reader driven as Spark drives it, without Spark: offsets go through JSON, ranges through pickle."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from barnabas.spark import schema, source_options
from barnabas.spark.batch_reader import BatchReader
from barnabas.spark.stream_reader import StreamReader


def options(bootstrap: str, topic: str | None, **more: str) -> dict[str, str]:
    """Returns options. Underscores in names stand for dots: kafka_isolation_level."""
    named = {key.replace("_", "."): value for key, value in more.items()}
    subscribed = {} if topic is None else {"subscribe": topic}
    return {"kafka.bootstrap.servers": bootstrap} | subscribed | named


def batch(bootstrap: str, topic: str | None, **more: str) -> pa.Table:
    """Returns everything that `spark.read` would return."""
    parsed = source_options.parse(options(bootstrap, topic, **more), is_stream=False)
    reader = BatchReader(parsed)
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    found = [each for partition in partitions for each in pickle.loads(pickle.dumps(reader)).read(partition)]
    return pa.Table.from_batches(found, schema.arrow_schema(parsed.columns))


class Stream:
    """One query: `next` is a micro-batch, `restart` a new process with the same checkpoint."""

    def __init__(self, bootstrap: str, topic: str | None, **more: str) -> None:
        self.given = options(bootstrap, topic, **more)
        self.offset: dict[str, Any] | None = None
        self.end: dict[str, Any] | None = None
        self.restart()

    def restart(self, **more: str) -> None:
        self.given |= {key.replace("_", "."): value for key, value in more.items()}
        self.parsed = source_options.parse(self.given, is_stream=True)
        self.reader = StreamReader(self.parsed)

    def next(self, limit: ReadLimit | None = None) -> pa.Table | None:
        """Returns the next micro-batch, or None when there is nothing new."""
        if self.offset is None:
            self.offset = _through_json(self.reader.initialOffset())
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        self.end = _through_json(self.reader.latestOffset(self.offset, limit))
        if self.end == self.offset:
            return None
        table = self.again()
        self.reader.commit(self.offset)
        self.offset = self.end
        return table

    def again(self) -> pa.Table:
        """Returns the micro-batch that was planned last, as after a crash before its end was recorded."""
        assert self.offset is not None
        assert self.end is not None
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(self.offset, self.end)))
        task = pickle.loads(pickle.dumps(StreamReader(self.parsed)))
        found = [each for partition in partitions for each in task.read(partition)]
        return pa.Table.from_batches(found, schema.arrow_schema(self.parsed.columns))

    def drain(self) -> list[str]:
        """Returns the values of all micro-batches until there is nothing new."""
        values: list[str] = []
        while (table := self.next(ReadAllAvailable())) is not None:
            values += texts(table)
        return values


def texts(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def _through_json(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found
