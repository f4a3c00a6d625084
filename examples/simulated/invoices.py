"""Invoices for orders: one program consumes `orders` and writes an invoice for each to `invoices`.

`commits_first` is the classic mistake: it commits the position before the work is done, so that a crash in between
loses an order. `commits_last` commits what is done; an order can get its invoice twice, but no order stays without one.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

ORDERS = 60


async def shop(bootstrap: str, database: dict[str, int]) -> None:
    """Sends all orders. `database` has the number of the last one that was acknowledged, over crashes too."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        while database.get("sent", 0) < ORDERS:
            number = database.get("sent", 0) + 1
            await producer.send_and_wait("orders", f"order-{number}".encode(), key=str(number).encode())
            database["sent"] = number
            await asyncio.sleep(0.5)


async def commits_first(bootstrap: str) -> None:
    await _invoices(bootstrap, commits_before=True)


async def commits_last(bootstrap: str) -> None:
    await _invoices(bootstrap, commits_before=False)


async def _invoices(bootstrap: str, *, commits_before: bool) -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="invoices",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # aiokafka asks a former leader for the first offset until its metadata are renewed: after 5 minutes by default.
        metadata_max_age_ms=30_000,
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    if commits_before:
                        await consumer.commit()
                    # The time that printing an invoice takes.
                    await asyncio.sleep(0.3)
                    await producer.send_and_wait("invoices", record.value)
            if not commits_before:
                try:
                    await consumer.commit()
                except KafkaError:
                    # Another member has the partitions now, and does this work again.
                    continue
