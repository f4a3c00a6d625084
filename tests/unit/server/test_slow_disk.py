"""A broker on its real loop and pool, with a disk whose reads from outside the page cache take as long as the test
sets.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.wired import PROPERTIES, NotedCloses, WiredClient
from tests.support.wired_requests import batch_of, values_of

from barnabas.broker.assembly import Broker
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Buffer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.server.disk import OsDisk, OsFile
from barnabas.server.host import ServerHost

#: A time that no answer takes.
WAIT_S = 60.0


class SlowFile:
    """`.log` files of `orders` are never in memory, and reading one takes until it is allowed."""

    def __init__(self, file: OsFile, disk: SlowDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at_nowait(self, offset: int, size: int) -> Buffer | None:
        return None

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.readers.append(threading.current_thread())
        self._disk.is_allowed.wait(WAIT_S)
        return self._file.read_at(offset, size)


class SlowDisk(OsDisk):
    def __init__(self) -> None:
        self.readers: list[threading.Thread] = []
        self.is_slow = False
        self.is_allowed = threading.Event()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        file = super().open(path, create=create, read_only=read_only)
        return SlowFile(file, self) if self.is_slow and "/orders-0/" in path and path.endswith(".log") else file


class RequestClient:
    """A client of a broker that runs on this loop."""

    def __init__(self, broker: Broker) -> None:
        self._client = WiredClient(SimpleNamespace(broker=broker))  # type: ignore[arg-type]

    def send(self, request: Message, version: int) -> None:
        self._client.send(request, version)

    async def answer(self) -> Any:
        async with asyncio.timeout(WAIT_S):
            while not (answers := self._client.received()):
                await asyncio.sleep(0.001)
            return answers[0][1]

    async def call(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return await self.answer()


def fetch() -> FetchRequest:
    requested = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="orders", partitions=[requested])
    return FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def list_offsets() -> ListOffsetsRequest:
    requested = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[requested])
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def produce() -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch_of(b"x"))
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=[data])]
    )


async def scene(directory: Path) -> None:
    host = ServerHost(asyncio.get_running_loop())
    disk = host.disk = SlowDisk()
    config = BrokerConfig.from_properties({**PROPERTIES, "log.dirs": str(directory)})
    broker = Broker.create(host, config, NotedCloses())
    broker.open()
    broker.start()
    try:
        await asyncio.sleep(0.1)
        reader, searcher, other = RequestClient(broker), RequestClient(broker), RequestClient(broker)
        new = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        await other.call(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7)
        written: ProduceResponse = await other.call(produce(), 11)
        assert written.responses[0].partition_responses[0].error_code == 0
        broker.replicas.leader("orders", 0).log.segments.release()
        disk.is_slow = True

        reader.send(fetch(), 12)
        searcher.send(list_offsets(), 7)
        async with asyncio.timeout(WAIT_S):
            while len(disk.readers) < 2:
                await asyncio.sleep(0.001)
        for _ in range(20):
            await other.call(MetadataRequest(topics=None), 9)
        assert not disk.is_allowed.is_set()
        disk.is_allowed.set()
        fetched: FetchResponse = await reader.answer()
        found: ListOffsetsResponse = await searcher.answer()
        assert values_of(fetched) == [b"x"]
        assert found.topics[0].partitions[0].offset == 0
        assert threading.main_thread() not in disk.readers
    finally:
        broker.stop(lambda: None)
        host.close()


def test_others_are_answered_while_the_disk_is_slow(tmp_path: Path) -> None:
    asyncio.run(scene(tmp_path))
