"""The machine of an operator, from which bare requests are sent to any broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.simulated_cluster import Cluster

M = TypeVar("M", bound=Message)

#: The time within which an operator waits for the answer to a request.
TIMEOUT_MS: Final = 6_000
_TIMES: Final = ChannelTimes(TIMEOUT_MS, 3_000, 50, 500)
_CLIENT_PORT: Final = 9092


class AdminClient:
    """A machine with one connection to each broker. Random choices are those of the stream with its name."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.random = cluster.world.stream(f"operator/{name}")
        self._machine = Machine(cluster.world, cluster.network, name)
        self._process = self._machine.spawn()
        self._host = MachineHost(self._machine, self._process)
        self._area = ReceiveArea()
        self._channels: dict[str, Channel] = {}
        self.brokers = [node for node in cluster.nodes if node.startswith("broker")]

    def run(self, program: Callable[[], None]) -> None:
        """Calls the program now, as an event of the machine."""
        self._process.enter(program)

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self._host.timers.call_later(delay_ms, step)

    def send(
        self, request: Message, response_type: type[M], take: Callable[[M | None], None], node: str | None = None
    ) -> None:
        """Sends a request to a broker: this one, or any. `take` gets None if no response arrives in time."""
        node = self.random.choice(self.brokers) if node is None else node
        channel = self._channels.get(node)
        if channel is None:
            address = (node, _CLIENT_PORT)
            channel = self._channels[node] = Channel(self._host, self._area, address, self.name, _TIMES)

        def answered(response: Message | None) -> None:
            take(response if isinstance(response, response_type) else None)

        channel.send(request, answered, timeout_ms=TIMEOUT_MS)
