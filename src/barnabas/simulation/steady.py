"""Writers that never give up, one for each partition, and the longest time of each without an acknowledgement.

Each writes one record at a time with acks=all, and requests the leader from another broker after each refusal or
missing response. As real clients do, it ignores a leader of an epoch older than the one it knows.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.history import Violation
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US

_PAUSE_S: Final = 0.05
_BETWEEN_S: Final = 0.1
_TIMEOUT_MS: Final = 1_000
_BY_NAME: Final = 12


class SteadyWriter:
    """The writer of one partition, which never gives up."""

    def __init__(self, cluster: Cluster, client: Client, topic: str, index: int) -> None:
        self._cluster = cluster
        self.client = client
        self.topic, self.index = topic, index
        self._bare: BareClient | None = None
        self._leader: tuple[int, int] | None = None
        #: The time of each acknowledgement.
        self.acked_us: list[int] = []

    async def run(self) -> None:
        bare = self._bare = BareClient(self._cluster, self.client)
        number = 0
        while True:
            if self._leader is None:
                await self._read_state(bare)
            if self._leader is None or not await self._write(bare, f"broker{self._leader[1]}", number):
                await self._read_state(bare)
                await asyncio.sleep(_PAUSE_S)
                continue
            number += 1
            await asyncio.sleep(_BETWEEN_S)

    async def _read_state(self, bare: BareClient) -> None:
        brokers = [name for name in self._cluster.nodes if name.startswith("broker")]
        others = [name for name in brokers if self._leader is None or name != f"broker{self._leader[1]}"]
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
        )
        answer = await bare.call(
            bare.random.choice(others or brokers), request, MetadataResponse, timeout_ms=_TIMEOUT_MS
        )
        for topic in answer.topics if answer is not None else ():
            for row in topic.partitions:
                if row.partition_index == self.index and row.leader_id >= 0:
                    found = (row.leader_epoch, row.leader_id)
                    self._leader = found if self._leader is None else max(self._leader, found)

    async def _write(self, bare: BareClient, node: str, number: int) -> bool:
        wall_ms = (EPOCH_WALL_US + self._cluster.world.now_us) // MILLISECOND_US
        batch = encode_batch([Record(0, wall_ms, None, f"{self.index}/{number}".encode(), [])])
        row = ProduceRequest.PartitionProduceData(index=self.index, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[row])
        request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[topic])
        answer = await bare.call(node, request, ProduceResponse, version_max=_BY_NAME, timeout_ms=_TIMEOUT_MS)
        if answer is None or answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE:
            return False
        self.acked_us.append(self._cluster.world.now_us)
        return True

    def longest_gap_ms(self, begin_us: int, end_us: int) -> int:
        """Returns the longest time between `begin_us` and `end_us` without an acknowledgement."""
        times = [begin_us, *(at for at in self.acked_us if begin_us <= at <= end_us), end_us]
        return max(later - earlier for earlier, later in itertools.pairwise(times)) // MILLISECOND_US


class SteadyWriters:
    """The writers of a topic, one for each partition and each on a separate machine."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._writers = [
            SteadyWriter(cluster, cluster.add_client(f"writer{index}"), topic, index) for index in range(partitions)
        ]

    def start(self) -> None:
        for writer in self._writers:
            writer.client.run(writer.run)

    @property
    def all_have_begun(self) -> bool:
        return all(writer.acked_us for writer in self._writers)

    def all_have_acked_since(self, time_us: int) -> bool:
        return all(writer.acked_us[-1] > time_us for writer in self._writers)

    def longest_gaps_ms(self, begin_us: int, end_us: int) -> list[int]:
        return [writer.longest_gap_ms(begin_us, end_us) for writer in self._writers]

    def check(self, begin_us: int, end_us: int, bound_ms: int) -> None:
        """Raises Violation if a partition had no acknowledgement for longer than the bound."""
        for writer, gap_ms in zip(self._writers, self.longest_gaps_ms(begin_us, end_us), strict=True):
            if gap_ms > bound_ms:
                raise Violation(
                    f"{writer.topic}-{writer.index} acknowledged nothing for {gap_ms} ms ({bound_ms} allowed)"
                )
