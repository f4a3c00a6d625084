"""The monitor's connections to the brokers of a cluster: one for each broker, and a second one for slow requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from barnabas.monitor.broker_connection import Address, BrokerConnection, NoAnswer, Repeated, Security
from barnabas.protocol.message import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_CLIENT_ID: Final = "barnabas-monitor"


class Unreachable(Exception):
    """Signals that no broker answers. The text lists the brokers with reasons."""


class Connections:
    """The connections to all brokers of a cluster. `bootstrap` are the addresses that are always known; `known` those
    of the brokers that the cluster named.
    """

    def __init__(self, bootstrap: Sequence[Address], security: Security, timeout_s: float) -> None:
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._timeout_s = timeout_s
        self._lanes: dict[Address, BrokerConnection] = {}
        self._aside: dict[Address, BrokerConnection] = {}
        self.known: list[Address] = []

    def close(self) -> None:
        for connection in (*self._lanes.values(), *self._aside.values()):
            connection.close()

    def lane(self, address: Address) -> BrokerConnection:
        return self._opened(self._lanes, address)

    def aside(self, address: Address) -> BrokerConnection:
        """Returns a connection whose answers can take long, so that others do not wait behind them."""
        return self._opened(self._aside, address)

    def forget(self, wanted: Iterable[Address]) -> None:
        """Closes the connections to addresses that are not wanted any more."""
        keep = {*wanted, *self._bootstrap}
        for lanes in (self._lanes, self._aside):
            for address in [address for address in lanes if address not in keep]:
                lanes.pop(address).close()

    def knows(self, request: type[Message]) -> bool:
        """Whether any broker that answered supports this API."""
        return any(each.knows(request) for each in (*self._lanes.values(), *self._aside.values()))

    async def call_any(self, request: Message, response: type[M], *, timeout_s: float | None = None) -> M:
        """Sends a request to the broker that answered last, or to any other if it does not answer. Raises
        Unreachable.
        """
        return await self._ask_any(lambda connection: connection.call(request, response, timeout_s=timeout_s))

    async def call_any_again(self, repeated: Repeated[M]) -> M | None:
        """Sends a request as `call_any` does. Returns None if the response is the same as the last one."""
        return await self._ask_any(lambda connection: connection.call_again(repeated))

    async def _ask_any(self, ask: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        reasons = []
        for address in dict.fromkeys((*self._aside, *self.known, *self._bootstrap)):
            connection = self.aside(address)
            try:
                return await ask(connection)
            except NoAnswer as error:
                reasons.append(f"{address[0]}:{address[1]}: {error}")
                # This address becomes the last in the order.
                self._aside[address] = self._aside.pop(address)
        raise Unreachable("; ".join(reasons))

    def _opened(self, connections: dict[Address, BrokerConnection], address: Address) -> BrokerConnection:
        found = connections.get(address)
        if found is None:
            found = connections[address] = BrokerConnection(
                address, self._security, client_id=_CLIENT_ID, timeout_s=self._timeout_s
            )
        return found
