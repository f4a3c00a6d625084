"""The obvious alternative: a Spark source on confluent-kafka's consume(), with the same seven columns.

It is the other side of the Spark rows. It plans as little as possible: one task per partition, from its beginning to
its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from barnabas.spark import schema

_AT_ONCE = 10_000
_TYPES = [schema.ARROW[name] for name in schema.COLUMNS]


class ConfluentSource(DataSource):
    """A data source with the options bootstrap and topic."""

    @classmethod
    def name(cls) -> str:
        return "confluent_consume"

    def schema(self) -> Any:
        return schema.spark_schema(schema.COLUMNS)

    def reader(self, schema: Any) -> DataSourceReader:
        return _BatchReader(self.options["bootstrap"], self.options["topic"])

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader(self.options["bootstrap"], self.options["topic"])


class _Ranges:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic

    def consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 262_144,
                "queued.min.messages": 1_000_000,
                "fetch.message.max.bytes": 4 * 1024 * 1024,
            }
        )

    def ends(self) -> dict[str, int]:
        consumer = self.consumer()
        found = consumer.list_topics(self.topic, 30).topics[self.topic].partitions
        ends = {str(each): consumer.get_watermark_offsets(TopicPartition(self.topic, each))[1] for each in found}
        consumer.close()
        return ends

    def fetched(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            return
        index, first, end = partition.value
        consumer = self.consumer()
        consumer.assign([TopicPartition(self.topic, index, first)])
        arrow = schema.arrow_schema(schema.COLUMNS)
        while first < end:
            found = [each for each in consumer.consume(_AT_ONCE, 1.0) if each.error() is None and each.offset() < end]
            if not found:
                continue
            last = found[-1].offset()
            assert last is not None, "a record has an offset"
            first = last + 1
            times = [each.timestamp() for each in found]
            columns = [
                [each.key() for each in found],
                [each.value() for each in found],
                [each.topic() for each in found],
                [each.partition() for each in found],
                [each.offset() for each in found],
                [at * 1000 for _, at in times],
                [kind - 1 for kind, _ in times],
            ]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)
        consumer.close()


class _BatchReader(_Ranges, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition((int(index), 0, end)) for index, end in self.ends().items()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.fetched(partition)


class _StreamReader(_Ranges, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return dict.fromkeys(self.ends(), 0)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return self.ends()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((int(index), start[index], stop)) for index, stop in end.items() if start[index] < stop]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.fetched(partition)
