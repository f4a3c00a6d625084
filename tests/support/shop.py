"""A small cluster's content for the console's tests: topics, records, a group, and names that are hostile text."""

from __future__ import annotations

import json
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS: Final = "orders"
ORDERS_PARTITIONS: Final = 6
ORDERS_RECORDS: Final = 300
LONG: Final = "archive-of-everything-with-a-name-that-is-longer-than-any-column.v2.eu-central-1.production-" + "x" * 100
HOSTILE: Final = "<img src=x onerror=alert(1)>"
#: The group that has read half of each partition.
GROUP: Final = f"billing {HOSTILE}"
_SMALL: Final = tuple(f"events-{number:02d}" for number in range(40))


def fill(bootstrap: str) -> None:
    """Creates the topics, writes the records and commits the group's offsets."""
    topics = [
        NewTopic(ORDERS, ORDERS_PARTITIONS, 3, config={"min.insync.replicas": "2"}),
        NewTopic(LONG, 2, 3),
        NewTopic("single", 2, 1),
        *(NewTopic(name, 2, 3) for name in _SMALL),
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ORDERS_RECORDS):
        value = json.dumps({"number": number, "text": HOSTILE})
        headers: list[tuple[str, str | bytes | None]] = [(HOSTILE, HOSTILE.encode()), ("raw", b"\xff\x00")]
        producer.produce(ORDERS, value, f"{HOSTILE} {number}", number % ORDERS_PARTITIONS, headers=headers)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    half = ORDERS_RECORDS // ORDERS_PARTITIONS // 2
    offsets = [TopicPartition(ORDERS, partition, half) for partition in range(ORDERS_PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
