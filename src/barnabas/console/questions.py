"""The requests that a screen sends to brokers while a user waits: each has a time limit, and none goes to a broker that
is known to be silent.

The feeds have connections of their own, so that no question waits behind a long poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from barnabas.monitor.broker_connection import Address, BrokerConnection, NoAnswer, Security
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.message import Message

M = TypeVar("M", bound=Message)

_CLIENT_ID: Final = "barnabas-console"
#: The maximum number of connections to one broker; further requests wait for one of them.
_PER_BROKER: Final = 3


class Questions:
    def __init__(
        self, table: ClusterTable, bootstrap: Sequence[Address], security: Security, *, timeout_s: float = 2.0
    ) -> None:
        self._table = table
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._timeout_s = timeout_s
        self._pools: dict[Address, list[BrokerConnection]] = {}
        self._turns: dict[Address, int] = {}

    def close(self) -> None:
        for pool in self._pools.values():
            for connection in pool:
                connection.close()
        self._pools.clear()

    def new_connection(self, broker_id: int, *, timeout_s: float | None = None) -> BrokerConnection:
        """Returns a connection for one long piece of work; the caller closes it. Raises NoAnswer for a broker that is
        silent, or not in the cluster.
        """
        return BrokerConnection(
            self._address(broker_id),
            self._security,
            client_id=_CLIENT_ID,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )

    async def of(self, broker_id: int, request: Message, response: type[M], *, version_max: int | None = None) -> M:
        """Asks one broker. Raises NoAnswer, immediately for a broker that is silent or not in the cluster."""
        return await self._ask(self._address(broker_id), request, response, version_max)

    async def of_any(self, request: Message, response: type[M], *, version_max: int | None = None) -> M:
        """Asks the brokers that answer, one after the other until one does. Raises NoAnswer."""
        reasons = list[str]()
        for address in self._answering():
            try:
                return await self._ask(address, request, response, version_max)
            except NoAnswer as error:
                reasons.append(f"{address[0]}:{address[1]}: {error}")
        raise NoAnswer("; ".join(reasons) or "no broker answers")

    def knows(self, request: type[Message]) -> bool:
        """Whether any broker that answered supports this API."""
        return any(connection.knows(request) for pool in self._pools.values() for connection in pool)

    async def _ask(self, address: Address, request: Message, response: type[M], version_max: int | None) -> M:
        connection = self._connection(address)
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                return await connection.call(request, response, version_max=version_max)
        except TimeoutError as error:
            raise NoAnswer("no response in time") from error

    def _address(self, broker_id: int) -> Address:
        broker = self._table.brokers.get(broker_id)
        if broker is None:
            raise NoAnswer("it is not in the cluster")
        if broker.problem is not None:
            raise NoAnswer(broker.problem)
        return broker.address

    def _answering(self) -> list[Address]:
        known = [broker for broker in self._table.brokers.values() if broker.problem is None]
        if not known and not self._table.brokers:
            return list(self._bootstrap)
        return [broker.address for broker in sorted(known, key=lambda broker: -broker.answered_ms)]

    def _connection(self, address: Address) -> BrokerConnection:
        self._forget()
        pool = self._pools.setdefault(address, [])
        turn = self._turns[address] = self._turns.get(address, -1) + 1
        if len(pool) < _PER_BROKER:
            pool.append(BrokerConnection(address, self._security, client_id=_CLIENT_ID, timeout_s=self._timeout_s))
        return pool[turn % len(pool)]

    def _forget(self) -> None:
        """Closes the connections to addresses that the cluster does not name any more."""
        wanted = {*self._bootstrap, *(broker.address for broker in self._table.brokers.values())}
        for address in [address for address in self._pools if address not in wanted]:
            for connection in self._pools.pop(address):
                connection.close()
            self._turns.pop(address, None)
