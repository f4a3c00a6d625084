"""The second client of the demo, a process of its own: reads all orders with aiokafka and keeps its own books.

    python -m barnabas.cli.audit BOOTSTRAP TOPIC

It reads from the start while the producer still writes. When the first side is done it writes one line to our stdin,
{"end_offsets": {"0": 1523, ...}}; we read exactly up to there. On stdout come lines of JSON: {"orders": N} now and then
for the progress bar, at last {"books": {...}, ...}. End of stdin without that line means the first side gave up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from barnabas.orders.books import Books, enter_value

_REPORT_EVERY_S = 0.1


@dataclass(slots=True)
class Audit:
    """What the consumer found."""

    books: Books = field(default_factory=Books)
    records_by_partition: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    #: Records whose household had been seen at a later time already: order per key was broken.
    out_of_order: int = 0
    first_read_s: float = 0.0
    last_read_s: float = 0.0
    _latest_by_key: dict[bytes, int] = field(default_factory=dict, repr=False)

    def enter(self, record: ConsumerRecord[bytes, bytes]) -> None:
        self.records_by_partition[record.partition] = self.records_by_partition.get(record.partition, 0) + 1
        self.size_bytes += len(record.value or b"") + len(record.key or b"")
        key = record.key or b""
        if record.timestamp < self._latest_by_key.get(key, record.timestamp):
            self.out_of_order += 1
        self._latest_by_key[key] = record.timestamp
        enter_value(self.books, record.value or b"")

    def report(self) -> dict[str, Any]:
        return {
            "books": {
                "orders": self.books.orders,
                "lines": self.books.lines,
                "sales_cents": self.books.sales_cents,
                "duplicates": self.books.duplicates,
            },
            "records_by_partition": self.records_by_partition,
            "size_bytes": self.size_bytes,
            "out_of_order": self.out_of_order,
            "elapsed_s": self.last_read_s - self.first_read_s,
        }


async def audit(bootstrap: str, topic: str, partitions: int, end: asyncio.Future[dict[int, int]]) -> Audit:
    """Read all partitions from the start; finished when `end` is known and reached."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id="orders-audit",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    found = Audit()
    await consumer.start()
    try:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        await consumer.seek_to_beginning(*assigned)
        reported_s = 0.0
        while not (end.done() and await _reached(consumer, topic, end.result())):
            batches = await consumer.getmany(timeout_ms=50, max_records=2000)
            now_s = time.monotonic()
            for records in batches.values():
                found.first_read_s = found.first_read_s or now_s
                for record in records:
                    found.enter(record)
                found.last_read_s = time.monotonic()
            if now_s - reported_s >= _REPORT_EVERY_S:
                reported_s = now_s
                _say({"orders": found.books.orders})
    finally:
        await consumer.stop()
    return found


async def _reached(consumer: AIOKafkaConsumer, topic: str, end: dict[int, int]) -> bool:
    for number, offset in end.items():
        if await consumer.position(TopicPartition(topic, number)) < offset:
            return False
    return True


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


async def _run(bootstrap: str, topic: str, partitions: int) -> int:
    loop = asyncio.get_running_loop()
    end: asyncio.Future[dict[int, int]] = loop.create_future()
    reading = asyncio.create_task(audit(bootstrap, topic, partitions, end))

    def on_stdin() -> None:
        line = sys.stdin.readline()
        loop.remove_reader(sys.stdin.fileno())
        if not line:
            reading.cancel()
            return
        end.set_result({int(number): offset for number, offset in json.loads(line)["end_offsets"].items()})

    loop.add_reader(sys.stdin.fileno(), on_stdin)
    try:
        found = await reading
    except asyncio.CancelledError:
        return 1
    _say(found.report())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(_run(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    except KeyboardInterrupt:
        sys.exit(130)
