"""The scenarios of the three sample applications, each with its mistake and without it.

barnabas simulate --app scenarios:invoices_broken --faults kill,partition,pause --explore 100
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import invoices
import payments
import totals
from aiokafka.errors import KafkaError

from barnabas.testing import Simulation

_FAULTS_S = 40
_AFTER_S = 120


async def _until(is_done: Callable[[], Awaitable[bool]]) -> None:
    """Waits until the application is done, at most two minutes."""
    for _ in range(_AFTER_S):
        # Right after the faults, the brokers can still be on their way back.
        with suppress(KafkaError):
            if await is_done():
                return
        await asyncio.sleep(1)


async def _invoices(sim: Simulation, program: Callable[[str], Any]) -> None:
    database: dict[str, int] = {}
    await sim.create_topic("orders", 3)
    await sim.create_topic("invoices")
    sim.start("shop", partial(invoices.shop, sim.bootstrap, database))
    sim.start("invoicing", partial(program, sim.bootstrap))
    await sim.inject_faults(_FAULTS_S)

    async def missing() -> set[bytes]:
        ordered = {record.value for record in await sim.records("orders")}
        return ordered - {record.value for record in await sim.records("invoices")}

    async def is_done() -> bool:
        return database.get("sent") == invoices.ORDERS and not await missing()

    await _until(is_done)
    left = sorted(await missing())
    assert not left, f"orders without an invoice: {left}"
    assert database["sent"] == invoices.ORDERS


async def invoices_broken(sim: Simulation) -> None:
    await _invoices(sim, invoices.commits_first)


async def invoices_fixed(sim: Simulation) -> None:
    await _invoices(sim, invoices.commits_last)


async def _payments(sim: Simulation, program: Callable[[str, dict[str, int]], Any]) -> None:
    database: dict[str, int] = {}
    booked: dict[str, int] = {}
    accounts: Counter[int] = Counter()
    await sim.create_topic("payments", 2)
    sim.start("shop", partial(program, sim.bootstrap, database))
    sim.start("bank", partial(payments.bank, sim.bootstrap, booked, accounts))

    def nobody_pays_twice() -> None:
        twice = [cart for cart, count in accounts.items() if count > 1]
        assert not twice, f"carts that were paid twice: {twice}"

    sim.invariant(nobody_pays_twice)
    await sim.inject_faults(_FAULTS_S)

    async def is_done() -> bool:
        return len(accounts) == payments.CARTS

    await _until(is_done)
    assert sorted(accounts) == list(range(1, payments.CARTS + 1))


async def payments_broken(sim: Simulation) -> None:
    await _payments(sim, payments.new_id_for_each_try)


async def payments_fixed(sim: Simulation) -> None:
    await _payments(sim, payments.one_id_for_all_tries)


async def _totals(sim: Simulation, program: Callable[[str, str], Any]) -> None:
    database: dict[str, int] = {}
    await sim.create_topic("orders", totals.PARTITIONS)
    await sim.create_topic("totals", totals.PARTITIONS)
    sim.start("shop", partial(totals.shop, sim.bootstrap, database))
    for name in ("counter1", "counter2"):
        sim.start(name, partial(program, sim.bootstrap, name))
    await sim.inject_faults(_FAULTS_S)

    async def counted() -> tuple[Counter[int], Counter[int]]:
        """Returns the numbers of orders by customer, as they are and as the application says."""
        numbers: Counter[int] = Counter()
        for partition in range(totals.PARTITIONS):
            numbers.update((await totals.newest_total(sim.bootstrap, partition))[1])
        orders = Counter(json.loads(record.value)["customer"] for record in await sim.records("orders"))
        return orders, numbers

    async def is_done() -> bool:
        orders, numbers = await counted()
        return database.get("sent") == totals.ORDERS and orders == numbers

    await _until(is_done)
    orders, numbers = await counted()
    assert orders == numbers


async def totals_broken(sim: Simulation) -> None:
    await _totals(sim, totals.keeps_state)


async def totals_fixed(sim: Simulation) -> None:
    await _totals(sim, totals.drops_state)
