"""The Kafka clients that run in this process: confluent-kafka (librdkafka), aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka.admin
from tests.clients.drivers import ClientFailure, Record, Traits
from tests.clients.protection import Protection

import kafka

WAIT_S = 120.0


class ConfluentKafka:
    name = "confluent-kafka"
    traits = Traits()

    def __init__(self, bootstrap: str, protection: Protection | None = None, **producer_settings: object) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 3}
        self._common |= {} if protection is None else protection.librdkafka()
        self._producer_settings = {key.replace("_", "."): value for key, value in producer_settings.items()}

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = confluent_kafka.admin.AdminClient(self._common)
        new = confluent_kafka.admin.NewTopic(topic, partitions, 1)
        admin.create_topics([new], operation_timeout=WAIT_S)[topic].result(WAIT_S)

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        settings = {"compression.type": codec, "linger.ms": 20, **self._producer_settings}
        producer = confluent_kafka.Producer({**self._common, **settings})
        offsets = [-1] * len(records)
        failures: list[str] = []

        def delivered(index: int, error: Any, message: Any) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                offsets[index] = message.offset()

        for index, record in enumerate(records):
            stamp: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
                on_delivery=partial(delivered, index),
                **stamp,
            )
        if producer.flush(WAIT_S) or failures:
            raise ClientFailure(f"confluent-kafka produce: {failures or 'timed out'}")
        return offsets

    def consume(
        self, topic: str, partition: int, count: int, *, offset: int = 0, timestamp: int | None = None
    ) -> list[Record]:
        consumer = confluent_kafka.Consumer({**self._common, "group.id": "none", "enable.auto.commit": False})
        try:
            if timestamp is not None:
                wanted = confluent_kafka.TopicPartition(topic, partition, timestamp)
                offset = consumer.offsets_for_times([wanted], timeout=WAIT_S)[0].offset
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
            found: list[Record] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(found), timeout=1.0):
                    if message.error() is not None:
                        raise ClientFailure(f"confluent-kafka consume: {message.error()}")
                    found.append(self._record(message))
            return found
        finally:
            consumer.close()

    @staticmethod
    def _record(message: Any) -> Record:
        return Record(
            partition=message.partition(),
            offset=message.offset(),
            timestamp=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )


class AioKafka:
    name = "aiokafka"
    traits = Traits(neither_key_nor_value=False)

    def __init__(self, bootstrap: str, protection: Protection | None = None) -> None:
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self._common |= {} if protection is None else protection.aiokafka()

    def create_topic(self, topic: str, partitions: int) -> None:
        async def create() -> None:
            admin = aiokafka.admin.AIOKafkaAdminClient(**self._common)
            await admin.start()
            try:
                answer = await admin.create_topics([aiokafka.admin.NewTopic(topic, partitions, 1)])
            finally:
                await admin.close()
            for name, code, *_ in answer.topic_errors:
                if code:
                    raise ClientFailure(f"aiokafka create {name}: error {code}")

        asyncio.run(create())

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        async def produce() -> list[int]:
            compression = None if codec == "none" else codec
            producer = aiokafka.AIOKafkaProducer(**self._common, compression_type=compression, linger_ms=20)
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                return [metadata.offset for metadata in await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)]
            finally:
                await producer.stop()

        return asyncio.run(produce())

    def consume(
        self, topic: str, partition: int, count: int, *, offset: int = 0, timestamp: int | None = None
    ) -> list[Record]:
        async def consume() -> list[Record]:
            at = aiokafka.TopicPartition(topic, partition)
            consumer = aiokafka.AIOKafkaConsumer(**self._common, enable_auto_commit=False)
            await consumer.start()
            try:
                consumer.assign([at])
                start = offset
                if timestamp is not None:
                    start = (await consumer.offsets_for_times({at: timestamp}))[at].offset
                consumer.seek(at, start)
                return [_record(await asyncio.wait_for(consumer.getone(), WAIT_S)) for _ in range(count)]
            finally:
                await consumer.stop()

        return asyncio.run(consume())


class KafkaPython:
    name = "kafka-python"
    traits = Traits(null_headers=False, neither_key_nor_value=False)

    def __init__(self, bootstrap: str, protection: Protection | None = None) -> None:
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self._common |= {} if protection is None else protection.kafka_python()

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = kafka.admin.KafkaAdminClient(**self._common)
        try:
            admin.create_topics([kafka.admin.NewTopic(topic, partitions, 1)])
        finally:
            admin.close()

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        compression = None if codec == "none" else codec
        producer = kafka.KafkaProducer(**self._common, compression_type=compression, linger_ms=20, acks="all")
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(WAIT_S)
            return [each.get(WAIT_S).offset for each in sent]
        finally:
            producer.close(5)

    def consume(
        self, topic: str, partition: int, count: int, *, offset: int = 0, timestamp: int | None = None
    ) -> list[Record]:
        at = kafka.TopicPartition(topic, partition)
        consumer = kafka.KafkaConsumer(**self._common, enable_auto_commit=False)
        try:
            consumer.assign([at])
            if timestamp is not None:
                offset = consumer.offsets_for_times({at: timestamp})[at].offset
            consumer.seek(at, offset)
            found: list[Record] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=1000, max_records=count - len(found))
                found.extend(_record(each) for each in polled.get(at, ()))
            return found
        finally:
            consumer.close()


def _record(consumed: Any) -> Record:
    """Converts a record of aiokafka or kafka-python, whose fields have the same names."""
    return Record(
        partition=consumed.partition,
        offset=consumed.offset,
        timestamp=consumed.timestamp,
        key=consumed.key,
        value=consumed.value,
        headers=tuple(consumed.headers),
    )
