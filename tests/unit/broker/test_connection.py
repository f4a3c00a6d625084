"""A connection: its answers, their order, its limits, and its end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce, produce_request, topic_id, values_of

from barnabas.broker.requests.client_connection import Connection
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.protocol import codec
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.simulation.host import MemoryLink

MIB = 1 << 20


@pytest.fixture
def wired() -> WiredBroker:
    wired = WiredBroker()
    wired.create_topic("orders", 2)
    return wired


class FullLink(MemoryLink):
    """A link whose peer reads only when `drain` says so; it holds back from `limit` bytes on, as sockets do."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.core: Connection | None = None
        self.most_unsent = 0

    def write(self, chunks: list[Buffer]) -> None:  # type: ignore[override]
        super().write(chunks)
        self.most_unsent = max(self.most_unsent, len(self.sent))
        if len(self.sent) > self.limit:
            assert self.core is not None
            self.core.pause_writing()

    def drain(self) -> bytes:
        assert self.core is not None
        taken = self.take()
        self.core.resume_writing()
        return taken


def frame_of(request: object, version: int, correlation_id: int) -> bytes:
    body = codec.encode(
        RequestHeader(
            request_api_key=request.API_KEY,  # type: ignore[attr-defined]
            request_api_version=version,
            correlation_id=correlation_id,
            client_id="c",
        ),
        2 if request.FLEXIBLE is not None and version >= request.FLEXIBLE else 1,  # type: ignore[attr-defined]
    )
    codec.encode_into(request, version, body)  # type: ignore[arg-type]
    return len(body).to_bytes(4, "big") + bytes(body)


def correlation_ids(data: bytes) -> list[int]:
    found, position = [], 0
    while position < len(data):
        found.append(int.from_bytes(data[position + 4 : position + 8], "big"))
        position += 4 + int.from_bytes(data[position : position + 4], "big")
    return found


def slow_client(wired: WiredBroker, limit: int) -> tuple[WiredClient, FullLink]:
    client = wired.connect()
    link = FullLink(limit)
    client.core._link = link  # type: ignore[assignment]
    link.core = client.core
    return client, link


def test_a_peer_that_does_not_read_its_answers_is_not_served_any_further(wired: WiredBroker) -> None:
    """A few bytes of requests may ask for a great deal."""
    for _ in range(4):
        produce(wired, wired.connect(), batch_of(b"x" * 200_000))
    client, link = slow_client(wired, 4 * MIB)
    count = 400
    client.send_raw(b"".join(frame_of(fetch_request(wired, 0, 12), 12, number) for number in range(count)))
    assert link.most_unsent < 8 * MIB
    assert not link.reading
    answered = []
    while taken := link.drain():
        answered += correlation_ids(taken)
        wired.host.time.run_for(0)
        assert link.most_unsent < 8 * MIB
    assert answered == list(range(count))
    assert link.reading
    assert not client.core.is_closed


def test_answers_behind_an_unanswered_request_are_bounded(wired: WiredBroker) -> None:
    for _ in range(4):
        produce(wired, wired.connect(), batch_of(b"x" * 100_000))
    client, writer = wired.connect(), wired.connect()
    waiting = fetch_request(wired, 0, 12, max_wait_ms=2**31 - 1)
    waiting.topics[0].partitions[0].partition = 1
    frames = [frame_of(waiting, 12, 0)] + [frame_of(fetch_request(wired, 0, 12), 12, n) for n in range(1, 200)]
    client.send_raw(b"".join(frames))
    assert client.link.sent == b""
    assert client.core._held_bytes < 3 * MIB
    assert not client.link.reading
    produce(wired, writer, batch_of(b"go"), index=1)
    wired.host.time.run_for(0)
    assert correlation_ids(client.link.take()) == list(range(200))
    assert client.link.reading
    assert client.core._held_bytes == client.core._out_bytes == 0


def test_unanswered_requests_are_bounded(wired: WiredBroker) -> None:
    client, writer = wired.connect(), wired.connect()
    count = 5000
    client.send_raw(
        b"".join(frame_of(fetch_request(wired, 0, 12, max_wait_ms=60_000), 12, number) for number in range(count))
    )
    assert len(client.core.in_flight) < 50, "others are served before the rest of what one peer has sent"
    wired.host.time.run_for(0)
    assert len(client.core.in_flight) == len(wired.broker.replicas.purgatory) == 512
    assert not client.link.reading
    produce(wired, writer, batch_of(b"x"))
    wired.host.time.run_for(0)
    assert correlation_ids(client.link.take()) == list(range(count))
    assert client.link.reading


def test_what_is_kept_unserved_does_not_mix_with_other_connections(wired: WiredBroker) -> None:
    """Connections share the receive area, so a frame that waits must have been copied out of it."""
    client, writer = wired.connect(), wired.connect()
    frames = [frame_of(fetch_request(wired, 0, 12, max_wait_ms=60_000), 12, number) for number in range(600)]
    data = b"".join(frames)
    client.send_raw(data[:-5])
    for _ in range(5):
        writer.send_raw(frame_of(ApiVersionsRequest(), 0, 7))
    client.send_raw(data[-5:])
    produce(wired, wired.connect(), batch_of(b"x"))
    wired.host.time.run_for(0)
    assert correlation_ids(client.link.take()) == list(range(600))


def test_what_was_answered_before_a_malformed_request_still_goes_out(wired: WiredBroker) -> None:
    client = wired.connect()
    good = frame_of(produce_request(wired, batch_of(b"x"), 9), 9, 1)
    client.send_raw(good + b"\0\0\0\x02\xff\xff" + good)
    assert client.link.is_closed
    assert correlation_ids(client.link.take()) == [1]
    assert wired.broker.replicas.leader("orders", 0).log.log_end_offset == 1


def test_a_late_answer_that_fails_ends_its_own_connection_only(
    wired: WiredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard G29."""
    unlucky, lucky, writer = wired.connect(), wired.connect(), wired.connect()
    unlucky.send(fetch_request(wired, 0, 12, max_wait_ms=500), 12)
    lucky.send(fetch_request(wired, 0, 12, max_wait_ms=500), 12)
    leader = wired.broker.replicas.leader("orders", 0)
    read, failures = type(leader).read, [True]

    def failing(*args: object, **kwargs: object) -> object:
        if failures:
            failures.pop()
            raise RuntimeError("a mistake of ours")
        return read(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(type(leader), "read", failing)
    assert produce(wired, writer, batch_of(b"x")) == (0, 0)
    assert unlucky.link.is_closed
    assert wired.closes.causes == ["fetch (1) version 12 of client 'wired' failed: RuntimeError('a mistake of ours')"]
    ((_, response),) = lucky.received()
    assert isinstance(response, FetchResponse)
    assert values_of(response) == [b"x"]


def test_a_failure_at_a_deadline_does_not_stop_the_others(wired: WiredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard G29."""
    unlucky, lucky = wired.connect(), wired.connect()
    unlucky.send(fetch_request(wired, 0, 12, max_wait_ms=500), 12)
    lucky.send(fetch_request(wired, 0, 12, max_wait_ms=501), 12)
    with monkeypatch.context() as patch:
        patch.setattr(type(wired.broker.replicas.leader("orders", 0)), "read", lambda *_, **__: 1 // 0)
        wired.host.time.run_for(500)
    assert unlucky.link.is_closed
    wired.host.time.run_for(1)
    assert len(lucky.received()) == 1


# -- produce


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_of_a_partition_that_is_named_twice_the_last_batch_counts(wired: WiredBroker, version: int) -> None:
    request = ProduceRequest(acks=1, timeout_ms=1000)
    for value in (b"first", b"second"):
        topic = produce_request(wired, batch_of(value), version).topic_data[0]
        request.topic_data.append(topic)
    client = wired.connect()
    response = client.call(request, version, ProduceResponse)
    rows = [row for topic in response.responses for row in topic.partition_responses]
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(0, 0, 0)]
    assert values_of(client.call(fetch_request(wired, 0, 12), 12, FetchResponse)) == [b"second"]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_producer_that_asks_a_follower_gets_the_leader(wired: WiredBroker, version: int) -> None:
    partition = wired.broker.replicas.leader("orders", 0)
    assert partition.image is not None
    partition.become_follower(partition.image._replace(leader=2))
    row_of = wired.connect().call(produce_request(wired, batch_of(b"x"), version), version, ProduceResponse)
    row = row_of.responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset, row.log_start_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    if version < 10:
        assert (row.current_leader, row_of.node_endpoints) == (None, [])
        return
    assert row.current_leader is not None
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 0)
    assert [(node.node_id, node.host, node.port) for node in row_of.node_endpoints] == [(1, "localhost", 9092)]


def test_the_shortcut_follows_config_and_leadership(wired: WiredBroker) -> None:
    client = wired.connect()
    for _ in range(2):
        assert produce(wired, client, batch_of(b"x"))[0] == 0
    partition = wired.broker.replicas.leader("orders", 0)
    log = partition.log
    small = type(log.config)(max_message_bytes=100)
    before, log.config = log.config, small
    assert produce(wired, client, batch_of(b"x" * 500))[0] == ErrorCode.MESSAGE_TOO_LARGE
    log.config = before
    assert produce(wired, client, batch_of(b"x" * 500)) == (0, 2)
    image = partition.image
    assert image is not None
    partition.become_follower(image._replace(leader=2))
    assert produce(wired, client, batch_of(b"x"))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.become_leader(image)
    assert produce(wired, client, batch_of(b"x")) == (0, 3)
    assert client.core.shortcut is not None


def test_the_shortcut_waits_for_its_turn(wired: WiredBroker) -> None:
    client = wired.connect()
    for _ in range(2):
        assert produce(wired, client, batch_of(b"x"))[0] == 0
    other = fetch_request(wired, 0, 12, max_wait_ms=300)
    other.topics[0].partitions[0].partition = 1
    sent = [client.send(other, 12), client.send(produce_request(wired, batch_of(b"y"), 11), 11)]
    assert client.received() == []
    wired.host.time.run_for(300)
    assert [correlation_id for correlation_id, _ in client.received()] == sent
    assert produce(wired, client, batch_of(b"z")) == (0, 3)


def test_the_shortcut_takes_no_batch_of_a_transaction(wired: WiredBroker) -> None:
    client = wired.connect()
    for _ in range(2):
        assert produce(wired, client, batch_of(b"x"))[0] == 0
    transactional = bytearray(batch_of(b"x", producer_id=5, base_sequence=0))
    transactional[22] |= 0x10
    assert produce(wired, client, bytes(transactional))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert wired.broker.replicas.leader("orders", 0).log.log_end_offset == 2


@pytest.mark.parametrize("producer_id, epoch, code", [(7, -1, 42), (-1, 0, 42), (7, 0, 0), (-1, -1, 0)])
def test_half_a_producer_is_refused(wired: WiredBroker, producer_id: int, epoch: int, code: int) -> None:
    request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch, transaction_timeout_ms=1000)
    request.transactional_id = None
    response = wired.connect().call(request, 5, InitProducerIdResponse)
    assert response.error_code == code
    assert (response.producer_id == -1) == (code != 0)


def test_an_old_topic_id_is_unknown(wired: WiredBroker) -> None:
    request = produce_request(wired, batch_of(b"x"), 13)
    assert request.topic_data[0].topic_id == topic_id(wired, "orders")
    request.topic_data[0].topic_id = b"\x01" * 16
    row = wired.connect().call(request, 13, ProduceResponse).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


class CountingLink(MemoryLink):
    """A link that counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.pauses = 0

    def write(self, chunks: Sequence[Buffer]) -> None:
        super().write(chunks)
        self.writes += 1

    def pause_reading(self) -> None:
        super().pause_reading()
        self.pauses += 1


def counted(client: WiredClient) -> CountingLink:
    client.core._link = link = CountingLink()
    client.link = link
    return link


def test_responses_that_one_fetch_completes_leave_together(wired: WiredBroker) -> None:
    """Each write to a socket is a system call."""
    leader = wired.broker.replicas.leader("orders", 0)
    assert leader.image is not None
    replicas: dict[str, Any] = {"replicas": (1, 3), "isr": (1, 3), "directories": (bytes(16),) * 2}
    leader.become_leader(leader.image._replace(leader_epoch=leader.image.leader_epoch + 1, **replicas))
    wired.broker.replicas.environment.is_alive = lambda broker_id: True  # type: ignore[method-assign]
    producer, follower = wired.connect(), wired.connect()
    link = counted(producer)
    count = 100
    producer.send_raw(b"".join(frame_of(produce_request(wired, batch_of(b"x"), 9), 9, n) for n in range(count)))
    assert link.writes == 0
    fetch = fetch_request(wired, count, 12)
    fetch.replica_id = 3
    follower.send(fetch, 12)
    wired.host.time.run_for(0)
    assert correlation_ids(link.take()) == list(range(count))
    assert link.writes == 1


def test_a_turn_that_ends_does_not_stop_the_socket(wired: WiredBroker) -> None:
    """Stopping and starting to read takes two system calls, and the next turn is soon."""
    client = wired.connect()
    link = counted(client)
    count = 600
    client.send_raw(b"".join(frame_of(produce_request(wired, batch_of(b"x"), 9, acks=1), 9, n) for n in range(count)))
    assert 0 < len(correlation_ids(bytes(link.sent))) < count
    assert link.reading
    client.send_raw(frame_of(ApiVersionsRequest(), 0, count))
    wired.host.time.run_for(0)
    assert correlation_ids(link.take()) == list(range(count + 1))
    assert link.pauses == 0


def test_an_idle_connection_takes_little_memory(wired: WiredBroker) -> None:
    """An empty deque for the requests in flight was more than half of it."""
    dispatcher = wired.broker.dispatcher("PLAINTEXT")
    link = MemoryLink()

    def connect() -> Connection:
        made = dispatcher.connect(link, "/127.0.0.1", "PLAINTEXT", "/127.0.0.1:50000")
        frame = frame_of(ApiVersionsRequest(), 0, 1)
        made.get_buffer()[: len(frame)] = frame
        made.received(len(frame))
        return made

    connect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        connections = [connect() for _ in range(200)]
        link.take()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(connections) == 200
    assert taken / 200 < 800
