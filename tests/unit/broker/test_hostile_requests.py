"""Requests of many rows do not hold the loop for long, in memory: each of the table is sent once, and answered.

Every test checks that no turn takes more than 50 ms of CPU (`support/turn_watch.py`).
`tests/system/test_bystanders_of_requests.py` runs them with real processes, next to a producer.
"""

from __future__ import annotations

from copy import copy

import pytest
from tests.support.hostile_requests import ATTACKS, TOPICS
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.requests.forwarding import encode_principal
from barnabas.common.errors import ErrorCode
from barnabas.common.types import METADATA_TOPIC_ID
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.header import RequestHeader

ROWS = 60_000


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    broker = WiredBroker()
    for name, partitions in TOPICS.items():
        broker.create_topic(name, partitions)
    broker.host.time.run_for(1_000)
    return broker


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_request_of_many_rows_holds_the_loop(wired: WiredBroker, name: str) -> None:
    requested = ATTACKS[name](ROWS)
    client = wired.connect()
    for message, version in requested[:20]:
        assert client.call(message, version, Message, within_ms=60_000)


def spread(message: Message) -> bool:
    """Gives each row of a request's only topic a topic of its own. Returns whether the request has such a topic."""
    for attribute in ("topics", "v3_and_below_topics", "topic_data", "topic_partitions", "markers", "dirs"):
        found = getattr(message, attribute, None)
        if not isinstance(found, list) or len(found) != 1:
            continue
        if spread(found[0]):
            return True
        for inner in ("partitions", "partition_indexes", "partition_data"):
            rows = getattr(found[0], inner, None)
            if isinstance(rows, list) and len(rows) > 1:
                topics = []
                for number, row in enumerate(rows):
                    topic = copy(found[0])
                    setattr(topic, inner, [row])
                    setattr(topic, "topic" if hasattr(topic, "topic") else "name", f"t{number}")
                    topics.append(topic)
                setattr(message, attribute, topics)
                return True
    return False


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name, make in ATTACKS.items() if any(spread(m) for m, _ in make(10))])
def test_no_request_of_many_topics_with_one_row_each_holds_the_loop(wired: WiredBroker, name: str) -> None:
    """Steps that count the rows of one topic never end in such a request."""
    client = wired.connect()
    for message, version in ATTACKS[name](ROWS)[:5]:
        if spread(message):
            assert client.call(message, version, Message, within_ms=60_000)


def at_the_controller(wired: WiredBroker) -> WiredClient:
    client = wired.connect()
    client.core = wired.broker.dispatcher("CONTROLLER").connect(client.link, "/127.0.0.1", "CONTROLLER")
    return client


def test_a_fetch_of_many_partitions_at_the_controller_is_decoded_in_steps(wired: WiredBroker) -> None:
    partitions = [FetchRequest.FetchPartition(partition=index) for index in range(4 * ROWS)]
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=partitions)])
    answer = at_the_controller(wired).call(request, 17, FetchResponse, within_ms=60_000)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("leaves", [False, True])
def test_the_message_of_a_long_request_is_freed_in_steps(
    wired: WiredBroker, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """A million rows with a short answer, or without one, were freed in one turn of 80 ms."""
    freed: list[object] = []
    monkeypatch.setattr(wired.broker.services.steps, "free", lambda *values: freed.extend(values))
    topics = [CreateTopicsRequest.CreatableTopic(name="same", num_partitions=1) for _ in range(ROWS // 20)]
    client = wired.connect()

    def leave_once_decoded() -> None:
        if client.core.in_flight[0].message is None:
            wired.host.time.call_soon(leave_once_decoded)
        else:
            client.core.close()

    client.send(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    if leaves:
        leave_once_decoded()
    wired.host.time.run_for(10_000)
    assert len(client.received()) == (0 if leaves else 1)
    requests = [value for value in freed if isinstance(value, CreateTopicsRequest)]
    assert [len(request.topics) for request in requests] == [len(topics)]


def test_names_of_many_words_do_not_hold_the_loop(wired: WiredBroker) -> None:
    """The messages of the errors hold the names, and are shortened."""
    cls = AlterPartitionReassignmentsRequest
    partitions = [cls.ReassignablePartition(partition_index=index, replicas=[1, 1]) for index in range(60)]
    request = cls(topics=[cls.ReassignableTopic(name="n " * 16_383, partitions=partitions)])
    answer = at_the_controller(wired).call(request, 0, AlterPartitionReassignmentsResponse, within_ms=60_000)
    rows = answer.responses[0].partitions
    assert {row.error_code for row in rows} != {0}
    assert {len(row.error_message or "") for row in rows} == {2_001}


@pytest.mark.parametrize("count", [240, 900, 1_500])
def test_a_long_response_in_an_envelope_is_not_copied(wired: WiredBroker, count: int) -> None:
    """The longest response has 96 MB: a copy of it would take about 50 ms, and the envelope took three."""
    names = [f"{index:05d}" + "x" * 32_000 for index in range(count)]
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    header = RequestHeader(request_api_key=19, request_api_version=7, correlation_id=5, client_id="c")
    frame = codec.encode(header, 2)
    codec.encode_into(CreateTopicsRequest(topics=topics), 7, frame)
    envelope = EnvelopeRequest(
        request_data=bytes(frame), request_principal=encode_principal("User:a"), client_host_address=bytes(4)
    )
    client = at_the_controller(wired)
    answer = client.call(envelope, 0, EnvelopeResponse, within_ms=60_000)
    assert client.call(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse, within_ms=60_000).topics
    assert (answer.error_code, answer.unknown_tags) == (ErrorCode.NONE, ())
    data = answer.response_data
    assert data is not None
    assert int.from_bytes(data[:4], "big") == 5
    response, end = codec.decode(CreateTopicsResponse, 7, data, 5)
    assert end == len(data) > 60_000 * count
    assert [topic.name for topic in response.topics] == names
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
