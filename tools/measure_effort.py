"""Measures the cost of work on this machine, and prints the constants of `barnabas.simulation.cpu`.

Run it on an idle machine after the core has become much faster or slower:

    .venv/bin/python tools/measure_effort.py

Work that involves the operating system (turns, bytes) is measured on a broker process by its CPU time, the rest in
memory.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.broker.assembly import Broker
from barnabas.broker.requests.steps import SLICE_UNITS
from barnabas.common import effort
from barnabas.common.config import BrokerConfig
from barnabas.common.effort import Work
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records import walk
from barnabas.records.batch import HEADER_BYTES, Record, encode_batch
from barnabas.records.compression import Codec, compress, unpack
from barnabas.simulation.host import MemoryHost, MemoryLink
from barnabas.testing.controlled_cluster import Cluster

ROUNDS = 7
_ROWS = 10_000
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
}


def ns_of(work: Callable[[], object]) -> float:
    """Returns the CPU time: the minimum of several rounds, because other processes only add to it."""
    taken = []
    for _ in range(ROUNDS):
        begun = time.process_time_ns()
        work()
        taken.append(time.process_time_ns() - begun)
    return min(taken)


def frame(request: Message, version: int) -> bytes:
    key = type(request).API_KEY
    assert key is not None
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="measure")
    body = codec.encode(header, request_header_version(key, version))
    codec.encode_into(request, version, body)
    return len(body).to_bytes(4, "big") + bytes(body)


def produce(data: bytes) -> bytes:
    partition = ProduceRequest.PartitionProduceData(index=0, records=data)
    topic = ProduceRequest.TopicProduceData(name="measured", partition_data=[partition])
    return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)


def create(name: str, partitions: int) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return frame(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)


def commit_request(rows: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=n % 50, committed_offset=n) for n in range(rows)]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="measured", partitions=partitions)
    return OffsetCommitRequest(group_id="measured", generation_id_or_member_epoch=-1, topics=[topic])


# -- in memory


class Counted:
    """A meter that only counts."""

    def __init__(self) -> None:
        self.counts: Counter[Work] = Counter()

    def add(self, work: Work, count: int) -> None:
        self.counts[work] += count


class Silent:
    def closed_for_cause(self, peer: str, cause: str, error: BaseException | None) -> None:
        raise AssertionError(cause) from error

    def request_failed(self, peer: str, what: str, error: BaseException | None) -> None:
        raise AssertionError(what) from error


class InMemory:
    """A broker without sockets and files."""

    def __init__(self) -> None:
        self.host = MemoryHost(seed=1)
        self._broker = Broker.create(self.host, BrokerConfig.from_properties(PROPERTIES), Silent())
        self._broker.open()
        self._broker.start()
        self.host.time.run_for(100)
        self._dispatcher = self._broker.dispatcher("PLAINTEXT")
        self.link = MemoryLink()
        self._core = self._dispatcher.connect(self.link, "/127.0.0.1", "PLAINTEXT")
        self.send(create("measured", 50), run_ms=200)
        self.send(frame(FindCoordinatorRequest(key="measured"), 3), run_ms=1_000)
        assert self.send(frame(commit_request(1), 8), run_ms=200).endswith(bytes(2)), "the group has a coordinator"

    def send(self, data: bytes, *, run_ms: int = 0) -> bytes:
        view = memoryview(data)
        while len(view):
            room = self._core.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._core.received(count)
            view = view[count:]
        if run_ms:
            self.host.time.run_for(run_ms)
        return self.link.take()

    def send_each(self, data: bytes, times: int) -> None:
        for _ in range(times):
            assert self.send(data), "it is answered immediately"

    def counted(self, work: Callable[[], object]) -> Counter[Work]:
        meter = Counted()
        before = effort.swap(meter)
        try:
            work()
        finally:
            effort.swap(before)
        return meter.counts


def request_prices(broker: InMemory) -> dict[str, float]:
    small = bytes(encode_batch([Record(0, 1, b"key", b"v" * 100)]))
    shortcut, times = produce(small), 2_000
    broker.send_each(shortcut, 10)
    prices = {"SHORTCUT": ns_of(lambda: broker.send_each(shortcut, times)) / times}
    versions = frame(ApiVersionsRequest(), 0)
    fetch = FetchRequest.FetchTopic(topic="measured", partitions=[FetchRequest.FetchPartition(partition=1)])
    fetches = frame(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetch]), 11)
    each = [ns_of(lambda data=data: broker.send_each(data, 500)) / 500 for data in (versions, fetches)]  # type: ignore[misc]
    prices["REQUEST"] = sum(each) / len(each)
    return prices


def field_prices(broker: InMemory, request_ns: float, row_ns: float) -> dict[str, float]:
    """Returns the prices of bytes in messages of many small rows: of decoding an OffsetCommit of 300 rows, without the
    price of the rows, and of encoding the answer to a Metadata request for 50 partitions.
    """
    commit = frame(commit_request(300), 8)
    metadata = frame(MetadataRequest(topics=None), 8)
    answer = len(broker.send(metadata))
    encoded = (ns_of(lambda: broker.send_each(metadata, 200)) / 200 - request_ns) / answer
    answered = 0

    def commits() -> None:
        nonlocal answered
        for _ in range(50):
            answered = len(broker.send(commit, run_ms=50))

    def nothing() -> None:
        for _ in range(50):
            broker.host.time.run_for(50)

    idle = ns_of(nothing)
    each = (ns_of(commits) - idle) / 50
    return {
        "ENCODED_BYTE": encoded,
        "DECODED_BYTE": (each - request_ns - 300 * row_ns - answered * encoded) / len(commit),
    }


def unit_prices() -> tuple[float, float]:
    """Returns the prices of decoding and of encoding 100,000 rows."""
    body = bytes(codec.encode(commit_request(10 * _ROWS), 8))
    rows = [OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=n) for n in range(10 * _ROWS)]
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="measured", partitions=rows)
    answer = OffsetCommitResponse(topics=[topic])

    def in_units(steps: Callable[[], Iterator[int]]) -> float:
        return ns_of(lambda: list(steps())) / sum(steps())

    return (
        in_units(lambda: codec.decode_in_steps(OffsetCommitRequest, 8, body)),
        in_units(lambda: codec.encode_in_steps(answer, 8, bytearray())),
    )


def piece_price(broker: InMemory) -> float:
    """Returns the price of a unit of a request that is served in pieces (ListOffsets of 10,000 rows), including
    decoding and encoding.
    """
    partitions = [ListOffsetsRequest.ListOffsetsPartition(partition_index=n % 50, timestamp=-1) for n in range(_ROWS)]
    topic = ListOffsetsRequest.ListOffsetsTopic(name="measured", partitions=partitions)
    data = frame(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)

    def call() -> None:
        assert broker.send(data, run_ms=400)

    counts = broker.counted(call)
    idle = ns_of(lambda: broker.host.time.run_for(400))
    return (ns_of(call) - idle) / counts[Work.UNIT]


def row_price(broker: InMemory, decoding_ns: float, encoding_ns: float) -> float:
    """Returns the price of a row of an OffsetCommit of 10,000 rows, without the work that is done in steps."""
    data = frame(commit_request(_ROWS), 8)

    def commit() -> None:
        assert broker.send(data, run_ms=400).endswith(bytes(2)), "it is committed"

    counts = broker.counted(commit)
    assert counts[Work.ROW] >= 0.99 * _ROWS, counts
    decoding = sum(codec.decode_in_steps(OffsetCommitRequest, 8, bytes(codec.encode(commit_request(_ROWS), 8))))
    encoding = counts[Work.UNIT] - decoding
    assert decoding > SLICE_UNITS, counts
    idle = ns_of(lambda: broker.host.time.run_for(400))
    return (ns_of(commit) - idle - decoding * decoding_ns - encoding * encoding_ns) / counts[Work.ROW]


def record_prices() -> dict[str, float]:
    many = bytes(encode_batch([Record(n, 1, b"k", b"v" * 20) for n in range(50_000)]))
    record = ns_of(lambda: walk.survey(many, HEADER_BYTES, 50_000, 0)) / 50_000
    plain = os.urandom(1000) * 2000
    prices = []
    for name in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        packed = memoryview(bytes(compress(name, plain)))
        prices.append(ns_of(lambda name=name, packed=packed: unpack(name, packed, len(plain))) / len(plain))  # type: ignore[misc]
    return {"RECORD": record, "UNPACKED_BYTE": max(prices)}


# -- a process with sockets and files


def cpu_ns(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e9


class Process:
    """A broker, and one connection to it."""

    def __init__(self, cluster: Cluster) -> None:
        host, port = cluster.bootstrap.split(":")
        self._pid = cluster.pid
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            out += self._socket.recv(size - len(out))
        return bytes(out)

    def ns_of(self, data: bytes, times: int) -> float:
        """Returns the CPU time of the process for one of these requests, each sent after the answer to the previous
        one.
        """
        for _ in range(20):
            self.call(data)
        begun, begun_at = cpu_ns(self._pid), time.monotonic()
        for _ in range(times):
            self.call(data)
        taken, elapsed_s = cpu_ns(self._pid) - begun, time.monotonic() - begun_at
        idle = cpu_ns(self._pid)
        time.sleep(elapsed_s)
        return (taken - (cpu_ns(self._pid) - idle)) / times


def main() -> None:
    broker = InMemory()
    prices = request_prices(broker)
    decoding_ns, encoding_ns = unit_prices()
    prices["UNIT"] = max(decoding_ns, encoding_ns, piece_price(broker))
    prices["ROW"] = row_price(broker, decoding_ns, encoding_ns)
    prices |= field_prices(broker, prices["REQUEST"], prices["ROW"])
    prices |= record_prices()
    with Cluster() as cluster:
        process = Process(cluster)
        process.call(create("measured", 1))
        time.sleep(1)
        small = bytes(encode_batch([Record(0, 1, b"key", b"v" * 100)]))
        turn = process.ns_of(produce(small), 20_000) - prices["SHORTCUT"]
        large = produce(bytes(encode_batch([Record(0, 1, b"key", os.urandom(900_000))])))
        received = (process.ns_of(large, 300) - turn - prices["SHORTCUT"]) / len(large)
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=20_200, partition_max_bytes=10_000_000)
        topic = FetchRequest.FetchTopic(topic="measured", partitions=[partition])
        fetch = frame(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000_000, topics=[topic]), 11)
        size = len(process.call(fetch))
        sent = (process.ns_of(fetch, 50) - turn - prices["REQUEST"]) / size
    print(f"TURN_NS = {turn:,.0f}")
    print(f"RECEIVED_BYTE_PS = {received * 1000:,.0f}")
    print(f"SENT_BYTE_PS = {sent * 1000:,.0f}    (answers of {size:,} bytes)")
    for work in Work:
        print(f"Work.{work.name}: {prices[work.name]:,.1f}")


if __name__ == "__main__":
    main()
