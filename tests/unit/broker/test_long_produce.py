"""Produce requests of thousands of rows are served in parts, with the answer that the whole would get."""

from __future__ import annotations

import struct

import pytest
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of

from barnabas.common.errors import ErrorCode
from barnabas.protocol import codec, produce_frame
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse

PARTITIONS = 700
Rows = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    broker = WiredBroker()
    broker.create_topic("wide", PARTITIONS)
    broker.host.time.run_for(1_000)
    return broker


def request(rows: Rows, acks: int = 1) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in rows]
    topics = [ProduceRequest.TopicProduceData(name="wide", partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)


def produced(wired: WiredBroker, rows: Rows, acks: int = 1, version: int = 9) -> list[tuple[int, int, int]]:
    """Returns partition, error code and offset of each row of the answer."""
    answer = wired.connect().call(request(rows, acks), version, ProduceResponse, within_ms=10_000)
    (topic,) = answer.responses
    assert topic.name == "wide"
    return [(row.index, row.error_code, row.base_offset) for row in topic.partition_responses]


def end(wired: WiredBroker, index: int) -> int:
    partition = wired.broker.replicas.find("wide", index)
    assert partition is not None
    return partition.log.log_end_offset


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [7, 9])
def test_all_rows_are_appended_and_answered(wired: WiredBroker, acks: int, version: int) -> None:
    before = [end(wired, index) for index in range(PARTITIONS)]
    rows = [(index, batch_of(b"value")) for index in range(PARTITIONS)]
    unknown = [(index, batch_of(b"value")) for index in range(PARTITIONS, PARTITIONS + 300)]
    found = produced(wired, rows + unknown, acks, version)
    assert found[:PARTITIONS] == [(index, 0, before[index]) for index in range(PARTITIONS)]
    assert {code for _, code, _ in found[PARTITIONS:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(found) == PARTITIONS + 300
    assert [end(wired, index) for index in range(PARTITIONS)] == [offset + 1 for offset in before]


def test_the_last_of_what_is_repeated_counts(wired: WiredBroker) -> None:
    before = end(wired, 3)
    rows = [(3, batch_of(b"a"))] * 600 + [(3, batch_of(b"a", b"b"))]
    assert produced(wired, rows) == [(3, 0, before)]
    assert end(wired, 3) == before + 2


def test_acks_that_nobody_knows_append_nothing(wired: WiredBroker) -> None:
    before = end(wired, 5)
    found = produced(wired, [(index, batch_of(b"a")) for index in range(600)], acks=2)
    assert {code for _, code, _ in found} == {ErrorCode.INVALID_REQUIRED_ACKS}
    assert end(wired, 5) == before


def test_without_acks_what_fails_ends_the_connection(wired: WiredBroker) -> None:
    client = wired.connect()
    before = end(wired, 5)
    client.send(request([(index, batch_of(b"a")) for index in range(600)], acks=0), 9)
    wired.host.time.run_for(1_000)
    assert not client.core.is_closed
    assert end(wired, 5) == before + 1
    client.send(request([(PARTITIONS + index, batch_of(b"a")) for index in range(600)], acks=0), 9)
    wired.host.time.run_for(1_000)
    assert client.core.is_closed


def test_requests_behind_it_keep_their_order_and_others_are_served_between(wired: WiredBroker) -> None:
    client, other = wired.connect(), wired.connect()
    before = end(wired, 7)
    long = client.send(request([(index, batch_of(b"a")) for index in range(PARTITIONS)]), 9)
    behind = client.send(request([(7, batch_of(b"b"))]), 9)
    assert other.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
    assert client.received() == []
    wired.host.time.run_for(0)
    answers = dict(client.received())
    assert list(answers) == [long, behind]
    row = answers[behind].responses[0].partition_responses[0]  # type: ignore[attr-defined]
    assert row.base_offset == before + 1


def test_what_stands_behind_its_end_ends_the_connection(wired: WiredBroker) -> None:
    client = wired.connect()
    rows = [(index, b"") for index in range(produce_frame.ROWS_MAX + 1)]
    # API key, version, correlation id, no client id, no tagged fields.
    frame = struct.pack(">hhihx", 0, 9, 1, -1) + bytes(codec.encode(request(rows), 9)) + b"\0"
    client.send_raw(len(frame).to_bytes(4, "big") + frame)
    wired.host.time.run_for(0)
    assert client.core.is_closed
