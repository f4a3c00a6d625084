"""Orders counted by customer: two members of a group share `orders` and write each customer's number to `totals`.

A member holds the numbers of its partitions in memory, and reads them from `totals` before the first order of a
partition. With `keeps_state` it does not drop them when a partition is revoked, the classic mistake: when the partition
comes back, it continues with old numbers, although another member has changed them. `drops_state` reads them again. It
does not read them in `on_partitions_assigned`, because aiokafka logs an error of that function, and continues.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

ORDERS = 120
CUSTOMERS = 8
PARTITIONS = 4


async def shop(bootstrap: str, database: dict[str, int]) -> None:
    """Sends all orders, each customer's to one partition. A crash can send an order twice, with the same number."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        while database.get("sent", 0) < ORDERS:
            number = database.get("sent", 0) + 1
            customer = number % CUSTOMERS
            order = json.dumps({"customer": customer, "order": number}).encode()
            await producer.send_and_wait("orders", order, partition=customer % PARTITIONS)
            database["sent"] = number
            await asyncio.sleep(0.25)


async def keeps_state(bootstrap: str, name: str) -> None:
    await Counting(bootstrap, name, drops=False).run()


async def drops_state(bootstrap: str, name: str) -> None:
    await Counting(bootstrap, name, drops=True).run()


class Counting(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of the group that counts the orders."""

    def __init__(self, bootstrap: str, name: str, *, drops: bool) -> None:
        self._bootstrap = bootstrap
        self._drops = drops
        #: The offset up to which a partition's orders are counted, and the number of each customer, by partition.
        self._totals: dict[int, tuple[int, dict[int, int]]] = {}
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=name,
            group_id="totals",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            # aiokafka asks a former leader for the first offset until its metadata are renewed: after 5 minutes by
            # default.
            metadata_max_age_ms=30_000,
        )
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
        #: A rebalance waits for the records that are being counted.
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        self._consumer.subscribe(["orders"], listener=self)
        async with self._consumer, self._producer:
            while True:
                found = await self._consumer.getmany(timeout_ms=500)
                async with self._lock:
                    for partition, records in found.items():
                        for record in records:
                            await self._count(partition.partition, record.offset, json.loads(record.value)["customer"])
                try:
                    await self._consumer.commit()
                except KafkaError:
                    continue

    async def _count(self, partition: int, offset: int, customer: int) -> None:
        while partition not in self._totals:
            try:
                self._totals[partition] = await newest_total(self._bootstrap, partition)
            except KafkaError:
                await asyncio.sleep(1)  # No broker answers: the order is counted later.
        done, numbers = self._totals[partition]
        if offset <= done:
            return
        numbers[customer] = numbers.get(customer, 0) + 1
        self._totals[partition] = (offset, numbers)
        content = json.dumps({"offset": offset, "numbers": numbers}).encode()
        await self._producer.send_and_wait("totals", content, partition=partition)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._forget()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        # Records that were fetched before can have been counted since the revocation.
        await self._forget()

    async def _forget(self) -> None:
        async with self._lock:
            if self._drops:
                self._totals.clear()


async def newest_total(bootstrap: str, partition: int) -> tuple[int, dict[int, int]]:
    """Returns the offset up to which the orders of a partition are counted, and the number of orders of each
    customer.
    """
    place = TopicPartition("totals", partition)
    newest: tuple[int, dict[int, int]] = (-1, {})
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as reader:
        reader.assign([place])
        await reader.seek_to_beginning(place)
        end = (await reader.end_offsets([place]))[place]
        while await reader.position(place) < end:
            for record in (await reader.getmany(timeout_ms=500)).get(place, ()):
                content = json.loads(record.value)
                # A member that lost the partition meanwhile can still write: the greatest offset counts.
                if content["offset"] > newest[0]:
                    newest = content["offset"], {int(key): value for key, value in content["numbers"].items()}
    return newest
