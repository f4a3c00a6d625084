"""The sink: writes rows as records, at least once, with librdkafka.

A task writes its rows and succeeds only when all in-sync replicas have acknowledged every one. The records of a failed
try remain in the log; the next try writes them again, with the same origin header.

A record without a key goes to a partition that its origin determines, so that its copy goes there too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.common.errors import ConfigError
from barnabas.records.checksum import crc32c
from barnabas.spark.errors import ClusterUnreachable, RequestRefused, SourceFailed
from barnabas.spark.origin import HEADER, origin, prefix
from barnabas.spark.sink_options import SinkOptions

#: Local properties that Spark's streams set for their tasks.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_METADATA_TIMEOUT_S = 30.0
#: librdkafka reports a refused login only between two tries.
_METADATA_TRY_S = 1.0
#: OpenSSL's text for a certificate of an unknown authority or with another name.
_UNTRUSTED = "certificate verify failed"
_POLL_EVERY = 10_000


class SinkFailed(SourceFailed):
    """Signals that not every record was acknowledged: the task failed, and Spark tries it again."""


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`. A retried task has the origins of its first try."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        number = 0 if task is None else task.partitionId()
        return RecordWriter(self._options, prefix(self._job_id, 0, number)).write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`. A micro-batch that is written again has the origins of its first try."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        query_id, batch_id, number = self._run_id, 0, 0
        if task is not None:
            query_id = task.getLocalProperty(_QUERY_ID) or self._run_id
            batch_id = int(task.getLocalProperty(_BATCH_ID) or 0)
            number = task.partitionId()
        return RecordWriter(self._options, prefix(query_id, batch_id, number)).write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: everything was acknowledged already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: the written records remain, and the next attempt writes them again."""


class RecordWriter:
    """The writer of one task's records. Raises ConfigError, ClusterUnreachable, SinkFailed."""

    def __init__(self, options: SinkOptions, origin_start: str) -> None:
        self._options = options
        self._origin_start = origin_start
        self._partitions: dict[str, int] = {}
        self._failure: str | None = None
        self._refusal: str | None = None
        self._last_error: str | None = None
        try:
            quiet = {"error_cb": self._on_error, "delivery.report.only.error": True}
            self._producer = Producer({**dict(options.producer), **quiet})
        except KafkaException as error:
            raise ConfigError(f"the producer refuses its configuration (kafka.*): {error.args[0].str()}") from error

    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """Writes the records, and returns when all are acknowledged."""
        index = 0
        try:
            for batch in batches:
                columns = [
                    batch.column(self._options.columns.index(name)).to_pylist()
                    if name in self._options.columns
                    else [None] * batch.num_rows
                    for name in ("key", "value", "topic", "partition", "headers")
                ]
                for row in zip(*columns, strict=True):
                    self._one(index, *row)
                    index += 1
                    if index % _POLL_EVERY == 0:
                        self._producer.poll(0)
                        self._check()
            left = self._producer.flush()
        except BaseException:
            self._producer.purge()
            raise
        self._check()
        if left:
            raise SinkFailed(f"{left} records were not acknowledged")
        return WriterCommitMessage()

    def _one(
        self, index: int, key: Any, value: Any, topic: str | None, partition: int | None, headers: list[Any] | None
    ) -> None:
        topic = topic if topic is not None else self._options.topic
        if topic is None:
            raise ConfigError(f"row {index} of its task has no topic: the column is null and there is no option topic")
        key, value = _bytes(key), _bytes(value)
        count = self._partitions.get(topic) or self._learn(topic)
        pairs = [(each["key"], each["value"]) for each in headers] if headers else []
        mark = None
        if self._options.marks_origin:
            mark = origin(self._origin_start, index, key, value)
            pairs = [pair for pair in pairs if pair[0] != HEADER]
            pairs.append((HEADER, mark))
        if partition is None:
            partition = crc32c(mark) % count if mark is not None and key is None else -1
        elif not 0 <= partition < count:
            raise ConfigError(f"row {index} of its task names partition {partition} of {topic}, which has {count}")
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=self._on_delivery, headers=pairs or None
                )
                return
            except BufferError:
                self._producer.poll(0.1)
                self._check()
            except KafkaException as error:
                raise SinkFailed(f"{topic}: {error.args[0].str()}") from error

    def _learn(self, topic: str) -> int:
        """Returns the number of the topic's partitions. It requests all topics, because a request for one could create
        it.
        """
        give_up = time.monotonic() + _METADATA_TIMEOUT_S
        while True:
            try:
                found = self._producer.list_topics(timeout=_METADATA_TRY_S).topics
                break
            except KafkaException as error:
                self._producer.poll(0)
                self._check_refusal()
                if time.monotonic() > give_up:
                    raise ClusterUnreachable(
                        f"no broker answers at kafka.bootstrap.servers={self._options.bootstrap}: "
                        f"{self._last_error or error.args[0].str()}"
                    ) from error
        self._partitions = {name: len(each.partitions) for name, each in found.items()}
        if not self._partitions.get(topic):
            raise ConfigError(
                f"topic {topic} does not exist at {self._options.bootstrap}: create it, or check its name"
            )
        return self._partitions[topic]

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = f"{message.topic()}-{message.partition()}: {error.str()}"

    def _on_error(self, error: Any) -> None:
        """Records an error. Most errors concern only deliveries, which report them; before the first delivery this is
        the only report.
        """
        self._last_error = error.str()
        if error.code() == KafkaError._AUTHENTICATION or _UNTRUSTED in self._last_error:
            self._refusal = self._last_error

    def _check_refusal(self) -> None:
        if self._refusal is not None:
            raise RequestRefused(
                f"the brokers at kafka.bootstrap.servers={self._options.bootstrap} refuse the sink's login, "
                f"or are not trusted: {self._refusal}"
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise SinkFailed(f"a record was not acknowledged: {self._failure}")


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
