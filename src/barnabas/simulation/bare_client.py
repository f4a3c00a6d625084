"""Clients that send single protocol requests from a simulated machine: requests that aiokafka does not support or that
no client library would send. Their programs are coroutines on the machine's loop, so they are killed and paused like
any other.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.peer_security import ChannelSecurity, controller_security, inter_broker_security
from barnabas.simulation.machine import MachineHost
from barnabas.simulation.simulated_cluster import Client, Cluster

M = TypeVar("M", bound=Message)

GROUP_KEY, TRANSACTION_KEY = 0, 1
_CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
_TIMEOUT_MS = 5_000
_TIMES = ChannelTimes(_TIMEOUT_MS, 3_000, 50, 500)
_PAUSE_S = 0.1


class BareClient:
    """The client of one process; it must be created within the process's program."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        process = client.machine.process
        assert process is not None
        self.random = cluster.world.stream(f"bare/{process.name}")
        self._loop = client.loop
        self._name = client.name
        self._host = MachineHost(client.machine, process)
        self._area = ReceiveArea()
        self._channels: dict[tuple[str, int], Channel] = {}
        self._nodes = cluster.nodes
        self._brokers = [name for name in cluster.nodes if name.startswith("broker")]
        self._coordinators: dict[tuple[str, int], str] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self.topic_ids: dict[bytes, str] = {}

    async def call(
        self,
        node: str,
        request: Message,
        kind: type[M],
        *,
        version_max: int | None = None,
        timeout_ms: int = _TIMEOUT_MS,
        port: int = _CLIENT_PORT,
    ) -> M | None:
        """Sends a request. Returns None if no response arrives in time."""
        channel = self._channels.get((node, port))
        if channel is None:
            security = self._security_of(node, port)
            channel = Channel(self._host, self._area, (node, port), self._name, _TIMES, security)
            self._channels[node, port] = channel
        answered: asyncio.Future[Message | None] = self._loop.create_future()
        channel.send(request, answered.set_result, timeout_ms=timeout_ms, version_max=version_max)
        answer = await answered
        return answer if isinstance(answer, kind) else None

    def _security_of(self, node: str, port: int) -> ChannelSecurity:
        """Returns how nodes connect to this listener: the client has their credentials."""
        config = BrokerConfig.from_properties(self._nodes[node].properties)
        return controller_security(config) if port == CONTROLLER_PORT else inter_broker_security(config)

    def any_broker(self) -> str:
        return self.random.choice(self._brokers)

    async def coordinator(self, key: str, key_type: int) -> str:
        """Returns the coordinator, repeating the request until a broker knows it; remembers it until `forget`."""
        while True:
            known = self._coordinators.get((key, key_type))
            if known is not None:
                return known
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer = await self.call(self.any_broker(), request, FindCoordinatorResponse)
            if answer is not None and answer.coordinators and answer.coordinators[0].error_code == ErrorCode.NONE:
                self._coordinators[key, key_type] = f"broker{answer.coordinators[0].node_id}"
            else:
                await asyncio.sleep(_PAUSE_S)

    async def leader(self, topic: str, index: int) -> str:
        """Returns the leader, in the same way as `coordinator`."""
        while True:
            known = self._leaders.get((topic, index))
            if known is not None:
                return known
            await self.refresh([topic])
            if (topic, index) not in self._leaders:
                await asyncio.sleep(_PAUSE_S)

    async def refresh(self, topics: list[str]) -> None:
        requested = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=requested, allow_auto_topic_creation=False)
        answer = await self.call(self.any_broker(), request, MetadataResponse)
        for topic in answer.topics if answer is not None else ():
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self.topic_ids[topic.topic_id] = topic.name
                for row in topic.partitions:
                    if row.leader_id >= 0:
                        self._leaders[topic.name, row.partition_index] = f"broker{row.leader_id}"

    def forget(self) -> None:
        """Forgets leaders and coordinators, so that they are requested again."""
        self._coordinators.clear()
        self._leaders.clear()
