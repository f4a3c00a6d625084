"""Wrappers around clients that record what they send, receive and read; `History` creates them.

A failure that a client reports is recorded as unknown, unless the client refused the record before sending it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol


class Operations(Protocol):
    """The part of a history that the wrappers write to."""

    def note(self, process: str | int, type_: str, f: str, **fields: Any) -> None:
        """Writes one operation."""

    def sent(self, process: str | int, topic: str, value: Any, partition: int | None = None, **fields: Any) -> None:
        """Records a value that is about to be sent."""

    def acked(self, process: str | int, topic: str, value: Any, partition: int, offset: int | None) -> None:
        """Records that the value was written."""

    def failed(self, process: str | int, topic: str, value: Any, error: object = None) -> None:
        """Records that the value was definitely not written."""

    def unknown(self, process: str | int, topic: str, value: Any, error: object = None) -> None:
        """Records that it is unknown whether the value was written."""

    def polled(self, process: str | int, records: Iterable[tuple[str, int, int, Any]], **fields: Any) -> None:
        """Records what a poll returned, in the order returned."""


class _Recorded:
    """A wrapped client: calls that a subclass does not record go directly to the client."""

    def __init__(self, history: Operations, client: Any, process: str | int) -> None:
        self._history = history
        self._client = client
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _note(self, type_: str, f: str, **fields: Any) -> None:
        self._history.note(self._process, type_, f, **fields)


class RecordedProducer(_Recorded):
    """A recorded `confluent_kafka.Producer`."""

    def __init__(self, history: Operations, client: Any, process: str | int, idempotent: bool) -> None:
        super().__init__(history, client, process)
        self._fields = {} if idempotent else {"idempotent": False}

    def __len__(self) -> int:
        return len(self._client)

    def produce(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> None:
        callback = options.pop("on_delivery", None) or options.pop("callback", None)
        self._history.sent(self._process, topic, value, options.get("partition"), **self._fields)
        try:
            self._client.produce(
                topic, value, key, on_delivery=partial(self._delivered, topic, value, callback), **options
            )
        except BaseException as error:
            self._history.failed(self._process, topic, value, error)
            raise

    def _delivered(self, topic: str, value: Any, callback: Callable[..., Any] | None, error: Any, message: Any) -> None:
        if error is None:
            self._history.acked(self._process, topic, value, message.partition(), message.offset())
        else:
            self._history.unknown(self._process, topic, value, error)
        if callback is not None:
            callback(error, message)

    def begin_transaction(self) -> None:
        self._client.begin_transaction()
        self._note("ok", "begin")

    def commit_transaction(self, *arguments: Any) -> None:
        self._end("commit", self._client.commit_transaction, arguments)

    def abort_transaction(self, *arguments: Any) -> None:
        self._end("abort", self._client.abort_transaction, arguments)

    def _end(self, f: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._note("invoke", f)
        try:
            call(*arguments)
        except BaseException as error:
            self._note("info", f, error=str(error))
            raise
        self._note("ok", f)


class RecordedConsumer(_Recorded):
    """A recorded `confluent_kafka.Consumer`."""

    def __init__(self, history: Operations, client: Any, process: str | int, isolation: str) -> None:
        super().__init__(history, client, process)
        self._isolation = isolation

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._note("ok", "subscribe", topics=topics, isolation=self._isolation)
        for name in ("on_assign", "on_revoke", "on_lost"):
            callbacks[name] = partial(self._rebalanced, callbacks.get(name))
        self._client.subscribe(topics, **callbacks)

    def _rebalanced(self, callback: Callable[..., Any] | None, consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self._note("ok", "rebalance", partitions=_places(partitions))
        if callback is not None:
            callback(consumer, partitions)

    def assign(self, partitions: list[Any]) -> None:
        self._note("ok", "assign", partitions=_places(partitions), isolation=self._isolation)
        self._client.assign(partitions)

    def seek(self, partition: Any) -> None:
        self._note("ok", "seek", partitions=_places([partition]))
        self._client.seek(partition)

    def poll(self, *arguments: Any, **options: Any) -> Any:
        message = self._client.poll(*arguments, **options)
        self._polled([] if message is None else [message])
        return message

    def consume(self, *arguments: Any, **options: Any) -> Any:
        messages = self._client.consume(*arguments, **options)
        self._polled(messages)
        return messages

    def _polled(self, messages: list[Any]) -> None:
        good = [each for each in messages if each.error() is None]
        self._history.polled(
            self._process, [(each.topic(), each.partition(), each.offset(), each.value()) for each in good]
        )


class AioRecordedProducer(_Recorded):
    """A recorded `aiokafka.AIOKafkaProducer`."""

    def __init__(self, history: Operations, client: Any, process: str | int, idempotent: bool) -> None:
        super().__init__(history, client, process)
        self._fields = {} if idempotent else {"idempotent": False}

    async def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> Any:
        self._history.sent(self._process, topic, value, options.get("partition"), **self._fields)
        try:
            future = await self._client.send(topic, value, key, **options)
        except BaseException as error:
            self._history.failed(self._process, topic, value, error)
            raise
        future.add_done_callback(partial(self._settled, topic, value))
        return future

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> Any:
        return await (await self.send(topic, value, key, **options))

    def _settled(self, topic: str, value: Any, done: Any) -> None:
        error = "cancelled" if done.cancelled() else done.exception()
        if error is not None:
            self._history.unknown(self._process, topic, value, repr(error))
        else:
            answer = done.result()
            self._history.acked(self._process, topic, value, answer.partition, answer.offset)

    async def begin_transaction(self) -> None:
        await self._client.begin_transaction()
        self._note("ok", "begin")

    async def commit_transaction(self) -> None:
        await self._end("commit", self._client.commit_transaction)

    async def abort_transaction(self) -> None:
        await self._end("abort", self._client.abort_transaction)

    async def _end(self, f: str, call: Callable[[], Any]) -> None:
        self._note("invoke", f)
        try:
            await call()
        except BaseException as error:
            self._note("info", f, error=repr(error))
            raise
        self._note("ok", f)


class AioRecordedConsumer(_Recorded):
    """A recorded `aiokafka.AIOKafkaConsumer`.

    After a change of its assignment, the client can return older offsets again, even records that it had already
    fetched; such a poll is marked `rebalanced`.
    """

    def __init__(self, history: Operations, client: Any, process: str | int, isolation: str) -> None:
        super().__init__(history, client, process)
        self._assigned: frozenset[Any] | None = None
        self._generation = -1
        self._note("ok", "assign", isolation=isolation)

    async def getone(self, *partitions: Any) -> Any:
        message = await self._client.getone(*partitions)
        self._polled([message])
        return message

    async def getmany(self, *partitions: Any, **options: Any) -> Any:
        found = await self._client.getmany(*partitions, **options)
        self._polled([message for messages in found.values() for message in messages])
        return found

    def seek(self, partition: Any, offset: int) -> None:
        self._note("ok", "seek", partitions=[f"{partition.topic}-{partition.partition}"])
        self._client.seek(partition, offset)

    def _polled(self, messages: list[Any]) -> None:
        coordinator = self._client._coordinator
        generation = getattr(coordinator, "generation", -1)
        assigned = self._client.assignment()
        changed = (assigned, generation) != (self._assigned, self._generation)
        self._assigned, self._generation = assigned, generation
        records = [(each.topic, each.partition, each.offset, each.value) for each in messages]
        self._history.polled(self._process, records, **({"rebalanced": True} if changed else {}))


def drain(
    history: Operations, process: str, bootstrap: str, topics: list[str], timeout_s: float, properties: dict[str, Any]
) -> int:
    """Reads every partition from offset 0 to its present end, records the reads, and returns the number of records."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": process,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        **properties,
    }
    deadline = time.monotonic() + timeout_s
    consumer: Any = Consumer(settings)
    try:
        known = consumer.list_topics(timeout=timeout_s).topics
        places = [TopicPartition(topic, index) for topic in topics for index in known[topic].partitions]
        left = {(at.topic, at.partition): consumer.get_watermark_offsets(at, timeout=timeout_s)[1] for at in places}
        consumer.assign([TopicPartition(at.topic, at.partition, 0) for at in places])
        history.note(process, "ok", "assign", isolation="read_committed")
        count = 0
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read to the end: {left}")
            records = []
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                at = (message.topic(), message.partition())
                if error is None:
                    records.append((*at, message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= left.get(at, 0):
                    left.pop(at, None)
            history.polled(process, records)
            count += len(records)
        history.note(process, "ok", "drained", partitions=_places(places))
        return count
    finally:
        consumer.close()


def _places(partitions: list[Any]) -> list[str]:
    return [f"{each.topic}-{each.partition}" for each in partitions]
