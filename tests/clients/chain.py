"""A link of a consume-transform-produce chain in a separate process, so that it can be killed.

    python chain.py CLIENT BOOTSTRAP NAME HISTORY [PARTITION...]

CLIENT is confluent-classic, confluent-consumer (KIP-848) or aiokafka; java/Chain.java does the same for Java. It reads
`input`, writes every record to the same partition of `output`, and commits both in one transaction. Its transactional
id is NAME, its group `chain`. aiokafka cannot send its generation with offsets (KIP-447): it gets fixed PARTITIONs, as
was usual before. After any failure it begins again from the committed offsets.

Each written value is the one read, "@", and a mark of this attempt. HISTORY is in the form of docs/check.md, with every
line written immediately. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka

from barnabas.testing import History

TRANSACTION_TIMEOUT_MS = 20_000
#: The time after which this process ends with the code HUNG, to be restarted: librdkafka 2.16 can wait forever in
#: `send_offsets_to_transaction` when the group's coordinator dies, whatever its timeout (its issues 5456 and 5511).
HANGS_S = 30
HUNG = 75
#: The shortest time that a transaction stays open, so that a broker can be killed meanwhile.
OPEN_S = 0.02
_stopping = False


class Durable(History):
    """A history whose lines are in the file even if this process is killed."""

    def note(self, process: str | int, type_: str, f: str, **fields: Any) -> None:
        super().note(process, type_, f, **fields)
        self._file.flush()


def run_confluent(kind: str, bootstrap: str, name: str, history: History) -> None:
    number = 0
    while not _stopping:
        number += 1
        _until_it_fails(kind, bootstrap, name, history, f"{name}:{os.getpid()}:{number}")


def _until_it_fails(kind: str, bootstrap: str, name: str, history: History, process: str) -> None:
    common = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 300}
    settings = {**common, "transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    producer = history.producer(confluent_kafka.Producer(settings), process)
    settings = {**common, "group.id": "chain", "isolation.level": "read_committed", "enable.auto.commit": False}
    settings |= {"auto.offset.reset": "earliest", "group.protocol": kind}
    consumer = confluent_kafka.Consumer(settings if kind == "consumer" else {**settings, "session.timeout.ms": 6_000})
    consumer.subscribe(["input"])
    serial = 0
    try:
        _retried(lambda: producer.init_transactions(20))
        while not _stopping:
            messages = [one for one in consumer.consume(20, 0.2) if one.error() is None]
            if messages:
                serial += 1
                _transform(producer, consumer, messages, f"@{process}:{serial}")
    except confluent_kafka.KafkaException as error:
        print(process, error, file=sys.stderr, flush=True)
    finally:
        consumer.close()


def _transform(producer: Any, consumer: Any, messages: list[Any], mark: str) -> None:
    offsets = {one.partition(): one.offset() + 1 for one in messages}
    position = [confluent_kafka.TopicPartition("input", partition, offset) for partition, offset in offsets.items()]
    producer.begin_transaction()
    try:
        for one in messages:
            producer.produce("output", one.value() + mark.encode(), partition=one.partition())
        time.sleep(OPEN_S)
        watchdog = threading.Timer(HANGS_S, os._exit, (HUNG,))
        watchdog.start()
        try:
            _retried(lambda: producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 10))
        finally:
            watchdog.cancel()
        _retried(lambda: producer.commit_transaction(20))
    except confluent_kafka.KafkaException as error:
        if error.args[0].txn_requires_abort():
            _retried(lambda: producer.abort_transaction(20))
        raise


def _retried(step: Callable[[], object]) -> None:
    while True:
        try:
            step()
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


async def run_aiokafka(bootstrap: str, name: str, history: History, partitions: list[int]) -> None:
    number = 0
    while not _stopping:
        number += 1
        process = f"{name}:{os.getpid()}:{number}"
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=5_000,
        )
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id="chain",
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=5_000,
        )
        try:
            # A transaction that an earlier process left open is ended when this returns: only then are the committed
            # offsets final.
            await producer.start()
            await consumer.start()
            await _until_it_fails_aio(history.aio_producer(producer, process), consumer, process, partitions)
        except (aiokafka.errors.KafkaError, OSError, TimeoutError) as error:
            print(process, repr(error), file=sys.stderr, flush=True)
            await asyncio.sleep(0.1)
        finally:
            for each in (consumer, producer):
                try:
                    await asyncio.wait_for(each.stop(), 10)
                except (aiokafka.errors.KafkaError, OSError, TimeoutError) as error:
                    print(process, "stop", repr(error), file=sys.stderr, flush=True)


async def _until_it_fails_aio(producer: Any, consumer: Any, process: str, partitions: list[int]) -> None:
    own = [aiokafka.TopicPartition("input", partition) for partition in partitions]
    consumer.assign(own)
    for each in own:
        consumer.seek(each, await consumer.committed(each) or 0)
    serial = 0
    while not _stopping:
        polled = await consumer.getmany(timeout_ms=200, max_records=20)
        records = [record for some in polled.values() for record in some]
        if not records:
            continue
        serial += 1
        await producer.begin_transaction()
        for record in records:
            value = record.value + f"@{process}:{serial}".encode()
            await producer.send("output", value, partition=record.partition)
        await asyncio.sleep(OPEN_S)
        offsets = {each: some[-1].offset + 1 for each, some in polled.items()}
        await producer.send_offsets_to_transaction(offsets, "chain")
        await producer.commit_transaction()


def _stop(number: int, frame: object) -> None:
    global _stopping
    _stopping = True


def main(client: str, bootstrap: str, name: str, path: str, *partitions: str) -> None:
    signal.signal(signal.SIGTERM, _stop)
    history = Durable(path)
    make, _, kind = client.partition("-")
    if make == "confluent":
        run_confluent(kind, bootstrap, name, history)
    else:
        asyncio.run(run_aiokafka(bootstrap, name, history, [int(each) for each in partitions]))


if __name__ == "__main__":
    main(*sys.argv[1:])
