"""A client without a library: one socket, one request, one answer, and no layer that retries or waits by itself.

The storage and cluster rows need it where a client library's own back-off would be part of what is measured: when a
broker is ready, how long one fetch takes, when metadata shows a decision.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.records.batch import read_header

R = TypeVar("R", bound=Message)

#: The last versions before the flexible ones, whose headers have no tagged fields.
_METADATA_VERSION = 8
_CREATE_TOPICS_VERSION = 4
_LIST_OFFSETS_VERSION = 5
_FETCH_VERSION = 11
_LATEST = -1
_POLL_S = 0.02
#: DescribeQuorum has no version before the flexible ones.
_DESCRIBE_QUORUM_VERSION = 2


class NotReady(Exception):
    """The broker answers, but not yet for all partitions."""


class Link:
    """One connection to a broker."""

    def __init__(self, port: int, timeout_s: float = 120.0, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")

    def exchange(self, frame: bytes) -> bytes:
        """Sends a frame built by `framed`, and returns the answer after its correlation id."""
        self.send(frame)
        return self.receive()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """Returns the next answer, after its correlation id."""
        head = self._receive(4)
        return self._receive(int.from_bytes(head, "big"))[4:]

    def fileno(self) -> int:
        """Returns the socket's descriptor, for a selector."""
        return self._socket.fileno()

    def _receive(self, size: int) -> bytes:
        # A socket with a timeout does not wait for all bytes, even with MSG_WAITALL.
        data = bytearray()
        while len(data) < size:
            if not (more := self._socket.recv(size - len(data))):
                raise EOFError("the connection ended without an answer")
            data += more
        return bytes(data)

    def call(self, request: Message, version: int, answer: type[R]) -> R:
        return self.call_timed(request, version, answer)[0]

    def call_timed(self, request: Message, version: int, answer: type[R]) -> tuple[R, float]:
        """Returns the answer, and the time when it arrived: before it was decoded, which can take long."""
        data = self.exchange(framed(request, version))
        arrived_at = time.monotonic()
        return decoded(request, version, answer, data), arrived_at

    def metadata(self, names: Iterable[str] = ()) -> tuple[MetadataResponse, float]:
        """Returns the brokers and these topics, and the time when the answer arrived."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self.call_timed(request, _METADATA_VERSION, MetadataResponse)

    def create_topic(
        self, name: str, partitions: int, replicas: int, assignment: Sequence[int] = (), timeout_ms: int = 60_000
    ) -> int:
        """Returns the error code of the answer. `assignment` has the replicas of every partition, unless the broker
        chooses them.
        """
        by_hand = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(assignment))
            for index in range(partitions if assignment else 0)
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replicas,
            assignments=by_hand,
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
        return self.call(request, _CREATE_TOPICS_VERSION, CreateTopicsResponse).topics[0].error_code

    def active_controller(self) -> int:
        """Returns the leader of the metadata quorum; -1 while there is none."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        requested = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        request = DescribeQuorumRequest(topics=[requested])
        answer = self.call(request, _DESCRIBE_QUORUM_VERSION, DescribeQuorumResponse)
        if answer.error_code or not answer.topics:
            return -1
        found = answer.topics[0].partitions[0]
        return -1 if found.error_code else found.leader_id

    def close(self) -> None:
        self._socket.close()


def _is_flexible(request: Message, version: int) -> bool:
    return request.FLEXIBLE is not None and version >= request.FLEXIBLE


def framed(request: Message, version: int) -> bytes:
    key = request.API_KEY
    assert key is not None, "a request has an API key"
    no_tags = b"\0" if _is_flexible(request, version) else b""
    body = struct.pack(">hhih5s", key, version, 7, 5, b"bench") + no_tags + encode(request, version)
    return struct.pack(">i", len(body)) + body


def decoded(request: Message, version: int, answer: type[R], data: bytes) -> R:
    """Decodes what `receive` returned, as the answer to this request."""
    # After the correlation id, a flexible answer has a count of tagged fields, which is 0.
    return decode(answer, version, data[1:] if _is_flexible(request, version) else data)[0]


def check_ready(link: Link, topics: Mapping[str, int], end_offset: int) -> None:
    """Checks that every partition has a leader and ends at `end_offset`. Raises NotReady. `topics` are names with
    partition counts.
    """
    metadata, _ = link.metadata(topics)
    for topic in metadata.topics:
        led = sum(partition.leader_id >= 0 for partition in topic.partitions)
        if topic.error_code or led != topics[topic.name or ""]:
            raise NotReady(f"{topic.name}: error {topic.error_code}, {led} partitions have a leader")
    for name, partitions in topics.items():
        requested = [
            ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            for index in range(partitions)
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=requested)]
        )
        answer = link.call(request, _LIST_OFFSETS_VERSION, ListOffsetsResponse)
        for row in answer.topics[0].partitions:
            if row.error_code:
                raise NotReady(f"{name}-{row.partition_index}: error {row.error_code}")
            if row.offset != end_offset:
                raise RuntimeError(f"{name}-{row.partition_index} ends at {row.offset}, not at {end_offset}")


def await_ready(
    port: int, process: subprocess.Popen[bytes], topics: Mapping[str, int], end_offset: int, timeout_s: float
) -> None:
    """Returns once clients find a leader and the right end of the log for every partition. Raises RuntimeError."""
    deadline = time.monotonic() + timeout_s
    last: Exception | None = None
    link: Link | None = None
    while time.monotonic() < deadline and process.poll() is None:
        try:
            link = link or Link(port)
            check_ready(link, topics, end_offset)
            link.close()
            return
        except NotReady as error:
            last = error
        except (OSError, EOFError) as error:
            last, link = error, None
        time.sleep(_POLL_S)
    raise RuntimeError(f"not ready within {timeout_s:.0f} s (exit code {process.poll()}): {last}")


def fetch_times_ms(port: int, topic: str, end_offset: int, count: int, warm_up: int, seed: int) -> list[float]:
    """Returns the times of `count` fetches of one batch each, at random offsets of partition 0, one after the other."""
    chance = random.Random(seed)
    link = Link(port)
    times_ms = []
    for index in range(warm_up + count):
        offset = chance.randrange(end_offset)
        frame = framed(_fetch_one_batch(topic, offset), _FETCH_VERSION)
        begun = time.perf_counter()
        answer = link.exchange(frame)
        elapsed_ms = (time.perf_counter() - begun) * 1000
        if index >= warm_up:
            times_ms.append(elapsed_ms)
        _check_fetched(answer, offset)
    link.close()
    return times_ms


def _fetch_one_batch(topic: str, offset: int) -> FetchRequest:
    # A limit of one byte is less than any batch, but the first batch is sent whole (KIP-74).
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


def _check_fetched(answer: bytes, offset: int) -> None:
    found = decode(FetchResponse, _FETCH_VERSION, answer)[0].responses[0].partitions[0]
    if found.error_code or not found.records:
        raise RuntimeError(f"the fetch at {offset} was answered with error {found.error_code} and no batch")
    header = read_header(found.records)
    if not header.base_offset <= offset < header.next_offset:
        raise RuntimeError(f"the fetch at {offset} brought the batch at {header.base_offset}")
