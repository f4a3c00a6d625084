"""Fetch sessions and unusual requests, step by step to Barnabas and to Apache Kafka: both answer the same."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.clients.servers import COMMON, BarnabasServer, Server
from tests.clients.wire import Wire, batch, record, wait_until_led

import kafka_jars
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest

pytestmark = pytest.mark.full

GOOD = batch([record(n, b"k%d" % n, b"v%d" % n) for n in range(3)])


class RequestClient:
    """A connection to one of the two servers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wire = Wire(server.port, timeout_s=60)
        self.ids: dict[str, bytes] = {}
        self.sessions: dict[int, int] = {}

    def call(self, request: Any, version: int) -> Any:
        key = request.API_KEY
        flexible = request_header_version(key, version) >= 2
        header = struct.pack(">hhih", key, version, 9, -1) + (b"\x00" if flexible else b"")
        self.wire.send_frame(header + bytes(codec.encode(request, version)))
        frame = self.wire.read_frame()
        if frame is None:
            self.wire = Wire(self.server.port, timeout_s=60)
            return None
        answer, _ = codec.decode(response_class(key), version, frame, 4 + response_header_version(key, version))
        return answer

    def create(self, name: str, partitions: int = 2) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        assert self.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == 0
        for index in range(partitions):
            wait_until_led(self.server.port, name, index)
        self.ids = {topic.name: topic.topic_id for topic in self.call(MetadataRequest(topics=None), 12).topics}

    def produce(self, version: int, *rows: tuple[str, int, bytes | None], acks: int = 1) -> Any:
        """Returns the answer for each row: (partition, error, base offset, log start offset)."""
        topics = []
        for name, index, data in rows:
            topic = ProduceRequest.TopicProduceData(
                partition_data=[ProduceRequest.PartitionProduceData(index=index, records=data)]
            )
            topic.name, topic.topic_id = ("", self.ids.get(name, b"\x05" * 16)) if version >= 13 else (name, bytes(16))
            topics.append(topic)
        answer = self.call(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics), version)
        if answer is None:
            return "closed"
        rows_of = [row for topic in answer.responses for row in topic.partition_responses]
        return sorted((row.index, row.error_code, row.base_offset, row.log_start_offset) for row in rows_of)

    def fetch(self, version: int, *rows: tuple[str, int, int], **fields: Any) -> Any:
        """Returns (error, session begun or continued, rough duration, [(topic, partition, error, HW, log start, bytes,
        ...)]).
        """
        forgotten = fields.pop("forget", [])
        leader_epoch = fields.pop("current_leader_epoch", -1)
        last_epoch = fields.pop("last_fetched_epoch", -1)
        session = fields.pop("session", 0)
        request = FetchRequest(
            **{"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **fields}
        )
        request.session_id = self.sessions.get(session, 0)
        for name, index, offset in rows:
            part = FetchRequest.FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, last_fetched_epoch=last_epoch
            )
            part.current_leader_epoch = leader_epoch
            topic = FetchRequest.FetchTopic(partitions=[part])
            topic.topic, topic.topic_id = ("", self.ids.get(name, b"\x05" * 16)) if version >= 13 else (name, bytes(16))
            request.topics.append(topic)
        for name, index in forgotten:
            gone = FetchRequest.ForgottenTopic(partitions=[index])
            gone.topic, gone.topic_id = ("", self.ids[name]) if version >= 13 else (name, bytes(16))
            request.forgotten_topics_data.append(gone)
        started = time.monotonic()
        answer = self.call(request, version)
        waited = "long" if time.monotonic() - started > 0.4 else "short"
        self.sessions[session] = answer.session_id or self.sessions.get(session, 0)
        names = {topic_id: name for name, topic_id in self.ids.items()}
        told = sorted(
            (
                names.get(topic.topic_id, "?") if version >= 13 else topic.topic,
                row.partition_index,
                row.error_code,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
                len(row.records or b""),
                None if row.aborted_transactions is None else len(row.aborted_transactions),
                None if row.diverging_epoch is None else (row.diverging_epoch.epoch, row.diverging_epoch.end_offset),
                None if row.current_leader is None else row.current_leader.leader_id,
            )
            for topic in answer.responses
            for row in topic.partitions
        )
        return answer.error_code, answer.session_id != 0, waited, told


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RequestClient, RequestClient]]:
    ours = BarnabasServer(tmp_path_factory.mktemp("ours"), properties=COMMON)
    theirs = kafka_jars.KafkaServer(tmp_path_factory.mktemp("theirs"), properties=COMMON)
    yield RequestClient(ours.start()), RequestClient(theirs.start())
    ours.stop()
    theirs.stop()


def script(asker: RequestClient, topic: str, version: int) -> list[Any]:
    """Runs a fetch session from start to end, and other requests of readers. Returns the answer to each step."""
    asker.create(topic)
    asker.sessions = {}
    f = asker.fetch
    steps: list[Any] = [asker.produce(min(version - 4, 13) if version > 7 else 3, (topic, 0, GOOD))]
    steps.append(f(version, (topic, 0, 0), (topic, 1, 0), session_epoch=0))
    steps.append(f(version, session_epoch=1))
    steps.append(f(version, (topic, 0, 3), session_epoch=2))
    steps.append(f(version, session_epoch=3, max_wait_ms=600))
    steps.append(asker.produce(9, (topic, 1, GOOD)))
    steps.append(f(version, session_epoch=4, max_wait_ms=600))
    steps.append(f(version, (topic, 1, 3), (topic, 7, 0), session_epoch=5))
    steps.append(f(version, session_epoch=6, max_wait_ms=600))
    steps.append(f(version, (topic, 1, 99), session_epoch=7, max_wait_ms=600))
    steps.append(f(version, (topic, 1, 3), session_epoch=8, forget=[(topic, 7)]))
    steps.append(f(version, (topic, 1, 3), session_epoch=9, forget=[(topic, 1)]))
    steps.append(f(version, session_epoch=99))
    steps.append(f(version, session_epoch=10, forget=[(topic, 0)]))
    steps.append(f(version, session_epoch=11))
    steps.append(f(version, session_epoch=0, session=1))
    steps.append(f(version, (topic, 0, 3), session_epoch=0, session=2))
    steps.append(f(version, (topic, 0, 3), session_epoch=-1, session=2))
    steps.append(f(version, session_epoch=1, session=2))
    steps.append(f(version, (topic, 0, 3), ("missing", 0, 0), max_wait_ms=600))
    steps.append(f(version, ("missing", 0, 0), max_wait_ms=600))
    steps.append(f(version, (topic, 0, 0), min_bytes=1 << 20, max_bytes=10, max_wait_ms=600))
    steps.append(f(version, (topic, 0, 0), (topic, 1, 0), max_bytes=10))
    steps.append(f(version, (topic, 0, 0), isolation_level=1))
    if version < 15:
        steps.append(f(version, (topic, 0, 0), replica_id=-2))
        steps.append(f(version, (topic, 0, 0), replica_id=5))
        steps.append(f(version, (topic, 0, 0), replica_id=5, current_leader_epoch=0))
    if version >= 12:
        steps.append(f(version, (topic, 0, 9), last_fetched_epoch=0))
        steps.append(f(version, (topic, 0, 1), last_fetched_epoch=0))
        steps.append(f(version, (topic, 0, 1), last_fetched_epoch=4))
        steps.append(f(version, (topic, 0, 9), last_fetched_epoch=0, isolation_level=1))
    return steps


@pytest.mark.parametrize("version", [7, 11, 12, 13, 16, 18])
def test_readers_are_answered_alike(both: tuple[RequestClient, RequestClient], version: int) -> None:
    ours, theirs = (script(asker, f"read-{version}", version) for asker in both)
    assert list(enumerate(ours)) == list(enumerate(theirs))


@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
def test_unusual_produce_requests_are_answered_alike(both: tuple[RequestClient, RequestClient], version: int) -> None:
    def steps(asker: RequestClient) -> list[Any]:
        name = f"written-{version}"
        asker.create(name)
        return [
            asker.produce(version, (name, 0, GOOD), (name, 0, GOOD)),
            asker.produce(version, (name, 0, GOOD), (name, 1, GOOD), (name, 9, GOOD)),
            asker.produce(version, (name, 0, b""), (name, 1, GOOD)),
            asker.produce(version, (name, 0, GOOD), ("missing", 0, GOOD), acks=-1),
            asker.produce(version, ("__transaction_state", 0, GOOD)),
            asker.produce(version, (name, 0, GOOD), acks=7),
        ]

    ours, theirs = (steps(asker) for asker in both)
    assert list(enumerate(ours)) == list(enumerate(theirs))


@pytest.mark.parametrize("producer_id, epoch", [(7, -1), (-1, 0)])
def test_half_a_producer_is_refused_alike(
    both: tuple[RequestClient, RequestClient], producer_id: int, epoch: int
) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    ours, theirs = (asker.call(request, 4) for asker in both)
    assert ours == theirs
