"""The contents of the log: the records of a topic from given offsets to its end, as any client sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.orders import topic as topics
from barnabas.orders.errors import OrdersError

_STALLED_S = 60.0
_BATCH = 5_000


class Record(NamedTuple):
    """One record of the log."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def read(bootstrap: str, topic: str, starts: Mapping[int, int], settings: Mapping[str, Any]) -> Iterator[Record]:
    """Yields all records from `starts` (partition -> offset) to the end offsets at the time of the call.

    Records that retention has deleted are skipped. No group is joined and no offset is committed.

    Raises:
        OrdersError: the brokers do not answer, or a partition returns nothing for a minute.
    """
    config = {
        "bootstrap.servers": bootstrap,
        "client.id": "orders",
        "log_level": 0,
        "group.id": "barnabas-orders",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        **settings,
    }
    consumer = Consumer(config)
    try:
        ends = topics.end_offsets(consumer, topic, starts)
        open_until = {number: end for number, end in ends.items() if starts[number] < end}
        if open_until:
            consumer.assign([TopicPartition(topic, number, starts[number]) for number in open_until])
        yield from _read(consumer, topic, open_until)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, open_until: dict[int, int]) -> Iterator[Record]:
    last_news_s = time.monotonic()
    while open_until:
        messages = consumer.consume(_BATCH, timeout=0.5)
        if messages:
            last_news_s = time.monotonic()
        elif time.monotonic() - last_news_s > _STALLED_S:
            left = ", ".join(f"{topic}-{number}" for number in sorted(open_until))
            raise OrdersError(
                f"received no record from {left} for {_STALLED_S:.0f} s", "see `barnabas topics describe`"
            )
        for message in messages:
            number, offset, error = message.partition(), message.offset(), message.error()
            assert number is not None
            assert offset is not None
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    # A new leader can return a high watermark below ours at first, so its end of partition counts only
                    # from ours on.
                    if offset >= open_until.get(number, 0):
                        open_until.pop(number, None)
                elif error.fatal() or not error.retriable():
                    raise OrdersError(f"cannot read {topic}: {topics.reason(KafkaException(error))}")
                continue
            if number not in open_until or offset >= open_until[number]:
                open_until.pop(number, None)
                continue
            yield Record(number, offset, message.timestamp()[1], message.key(), message.value())
            if offset + 1 >= open_until[number]:
                del open_until[number]
