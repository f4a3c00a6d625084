"""Payments for carts: a shop sends a payment for each cart until it is acknowledged, a bank books what it receives.

`new_id_for_each_try` is the classic mistake: a try whose answer is lost can have arrived, and the next one is another
payment. `one_id_for_all_tries` sends the same payment again, which the bank books once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

CARTS = 60


async def new_id_for_each_try(bootstrap: str, database: dict[str, int]) -> None:
    await _shop(bootstrap, database, lambda cart: str(uuid.uuid4()))


async def one_id_for_all_tries(bootstrap: str, database: dict[str, int]) -> None:
    await _shop(bootstrap, database, lambda cart: f"payment-of-{cart}")


async def _shop(bootstrap: str, database: dict[str, int], payment_id: Callable[[int], str]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", request_timeout_ms=3_000) as producer:
        while database.get("paid", 0) < CARTS:
            cart = database.get("paid", 0) + 1
            try:
                payment = f"{payment_id(cart)} {cart}".encode()
                await asyncio.wait_for(producer.send_and_wait("payments", payment), 5)
            except (KafkaError, TimeoutError):
                continue
            database["paid"] = cart
            await asyncio.sleep(0.5)


async def bank(bootstrap: str, booked: dict[str, int], accounts: Counter[int]) -> None:
    """Books payments. `booked` (payment to cart) and `accounts` (payments of each cart) are its database."""
    consumer = AIOKafkaConsumer(
        "payments",
        bootstrap_servers=bootstrap,
        group_id="bank",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # aiokafka asks a former leader for the first offset until its metadata are renewed: after 5 minutes by default.
        metadata_max_age_ms=30_000,
    )
    async with consumer:
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    payment, cart = record.value.decode().split()
                    if payment not in booked:
                        booked[payment] = int(cart)
                        accounts[int(cart)] += 1
            try:
                await consumer.commit()
            except KafkaError:
                continue
