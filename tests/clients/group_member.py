"""A member of a consumer group in a separate process, so that it can be killed: it reads, commits, and records both.

    python group_member.py CLIENT BOOTSTRAP GROUP TOPIC JOURNAL [INSTANCE_ID]

CLIENT is confluent-range, confluent-cooperative, confluent-consumer (KIP-848), aiokafka or kafka-python; members of
other languages are in java/, go/ and node/. Every line of the journal is a JSON object with the time (monotonic, of
this machine) and one of

    assigned   partitions that it just got, and the generation if the client reports it
    revoked    partitions that it just revokes
    lost       partitions that were taken from it at an unknown time
    read       partition, first and last offset of the records of one poll
    committed  partition, offset: acknowledged

SIGTERM makes it leave the group.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

#: The session timeout: a member that is silent for this long is removed from its group.
SESSION_MS = 6_000
HEARTBEAT_MS = 300
_stopping = False


class Journal:
    """A file that grows line by line; a line is in it even if the process is killed right after."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, event: str, **values: Any) -> None:
        line = json.dumps({"at": time.monotonic(), "event": event, **values})
        os.write(self._file, line.encode() + b"\n")

    def read(self, offsets: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Records offsets by partition, and returns the offset to commit for each partition."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for partition, offset in offsets:
            first.setdefault(partition, offset)
            last[partition] = offset
        for partition, offset in first.items():
            self.note("read", partition=partition, first=offset, last=last[partition])
        return {partition: offset + 1 for partition, offset in last.items()}

    def committed(self, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            self.note("committed", partition=partition, offset=offset)


def run_confluent(kind: str, bootstrap: str, group: str, topic: str, journal: Journal, instance: str | None) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 300,
        "error_cb": lambda error: None,
    }
    if kind == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        strategy = "cooperative-sticky" if kind == "cooperative" else "range"
        settings |= {"partition.assignment.strategy": strategy}
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    if instance:
        settings["group.instance.id"] = instance
    consumer = confluent_kafka.Consumer(settings)

    def assigned(_: Any, partitions: list[Any]) -> None:
        data = consumer.consumer_group_metadata()
        # librdkafka serializes this as a magic of seven bytes, followed by the generation in this machine's byte order.
        generation = struct.unpack_from("=i", data, 7)[0] if isinstance(data, bytes) else None
        journal.note("assigned", partitions=[each.partition for each in partitions], generation=generation)

    def revoked(_: Any, partitions: list[Any]) -> None:
        journal.note("revoked", partitions=[each.partition for each in partitions])

    def lost(_: Any, partitions: list[Any]) -> None:
        journal.note("lost", partitions=[each.partition for each in partitions])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not _stopping:
        messages = [each for each in consumer.consume(100, 0.1) if each.error() is None]
        due = journal.read((each.partition() or 0, each.offset() or 0) for each in messages)
        if not due:
            continue
        wanted = [confluent_kafka.TopicPartition(topic, partition, offset) for partition, offset in due.items()]
        try:
            answer = consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException:
            continue
        journal.committed({each.partition: each.offset for each in answer if each.error is None})
    consumer.close()


def run_aiokafka(bootstrap: str, group: str, topic: str, journal: Journal, instance: str | None) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    consumer: Any = None

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            # aiokafka reports both in the same way; a member that was removed has no generation any more.
            event = "lost" if consumer._coordinator.generation < 0 else "revoked"
            journal.note(event, partitions=[each.partition for each in revoked])

        async def on_partitions_assigned(self, assigned: Any) -> None:
            generation = consumer._coordinator.generation
            journal.note("assigned", partitions=[each.partition for each in assigned], generation=generation)

    async def run() -> None:
        nonlocal consumer
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            retry_backoff_ms=50,
            request_timeout_ms=5_000,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        await consumer.start()
        consumer.subscribe([topic], listener=Listener())
        while not _stopping:
            polled = await consumer.getmany(timeout_ms=100)
            due = journal.read((each.partition, each.offset) for records in polled.values() for each in records)
            if not due:
                continue
            wanted = {aiokafka.TopicPartition(topic, partition): offset for partition, offset in due.items()}
            try:
                await consumer.commit(wanted)
            except (TimeoutError, aiokafka.errors.KafkaError):
                continue
            journal.committed(due)
        journal.note("revoked", partitions=[each.partition for each in consumer.assignment()])
        await consumer.stop()

    asyncio.run(run())


def run_kafka_python(bootstrap: str, group: str, topic: str, journal: Journal, instance: str | None) -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    import kafka

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            journal.note("revoked", partitions=[each.partition for each in revoked])

        def on_partitions_lost(self, lost: Any) -> None:
            journal.note("lost", partitions=[each.partition for each in lost])

        def on_partitions_assigned(self, assigned: Any) -> None:
            journal.note("assigned", partitions=[each.partition for each in assigned], generation=None)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        request_timeout_ms=5_000,
        retry_backoff_ms=50,
        reconnect_backoff_max_ms=300,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([topic], listener=Listener())
    while not _stopping:
        polled = consumer.poll(timeout_ms=100)
        due = journal.read((each.partition, each.offset) for records in polled.values() for each in records)
        if not due:
            continue
        wanted = {
            kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in due.items()
        }
        try:
            consumer.commit(wanted)
        except KafkaError:
            continue
        journal.committed(due)
    journal.note("revoked", partitions=[each.partition for each in consumer.assignment()])
    consumer.close()


def _stop(number: int, frame: object) -> None:
    global _stopping
    _stopping = True


def main(client: str, bootstrap: str, group: str, topic: str, path: str, instance: str | None = None) -> None:
    signal.signal(signal.SIGTERM, _stop)
    journal = Journal(path)
    if client.startswith("confluent-"):
        run_confluent(client.removeprefix("confluent-"), bootstrap, group, topic, journal, instance)
    elif client == "aiokafka":
        run_aiokafka(bootstrap, group, topic, journal, instance)
    else:
        run_kafka_python(bootstrap, group, topic, journal, instance)


if __name__ == "__main__":
    main(*sys.argv[1:])
