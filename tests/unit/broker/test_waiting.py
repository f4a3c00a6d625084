"""Fetches that wait, and the cleanup after them: sessions, watchers, entries of the purgatory."""

from __future__ import annotations

import gc
import itertools

import pytest
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce, topic_id, values_of

from barnabas.broker.requests.in_flight import InFlight
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication.partition import Partition


@pytest.fixture
def wired() -> WiredBroker:
    wired = WiredBroker()
    wired.create_topic("orders", 2)
    return wired


def partition(wired: WiredBroker, index: int = 0) -> Partition:
    return wired.broker.replicas.leader("orders", index)


def watchers(wired: WiredBroker) -> int:
    return sum(len(each._watchers) for each in wired.broker.replicas.partitions())


def incremental(session_id: int, epoch: int, **fields: object) -> FetchRequest:
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def one(client: WiredClient) -> FetchResponse:
    ((_, response),) = client.received()
    assert isinstance(response, FetchResponse)
    return response


def test_a_connection_that_ends_takes_its_waiting_fetches_with_it(wired: WiredBroker) -> None:
    for _ in range(300):
        client = wired.connect()
        client.send(fetch_request(wired, 0, 12, max_wait_ms=2**31 - 1, session_epoch=0), 12)
        client.core.closed()
    assert watchers(wired) == 0
    assert len(wired.broker.replicas.purgatory) == 0
    assert len(wired.broker.services.fetch_sessions) == 0, "a session begins with its first answer"
    produce(wired, wired.connect(), batch_of(b"x"))


def test_fetches_that_are_answered_early_leave_no_trace_until_their_deadline(wired: WiredBroker) -> None:
    reader, writer = wired.connect(), wired.connect()
    for offset in range(1500):
        reader.send(fetch_request(wired, offset, 12, max_wait_ms=2**31 - 1), 12)
        produce(wired, writer, batch_of(b"x"))
        # One turn of the loop begins only this many answers.
        wired.host.time.run_for(0)
        assert len(values_of(one(reader))) == 1
    assert len(wired.broker.replicas.purgatory._heap) <= 300


def test_min_bytes_beyond_max_bytes_are_not_waited_for(wired: WiredBroker) -> None:
    produce(wired, wired.connect(), batch_of(b"x" * 1000))
    reader = wired.connect()
    request = fetch_request(wired, 0, 12, max_wait_ms=500, min_bytes=10_000)
    request.max_bytes = 100
    reader.send(request, 12)
    assert values_of(one(reader)) == [b"x" * 1000]


def test_what_ends_a_segment_is_not_kept_waiting_for_more(wired: WiredBroker) -> None:
    client, reader = wired.connect(), wired.connect()
    produce(wired, client, batch_of(b"first"))
    partition(wired).log.roll()
    produce(wired, client, batch_of(b"second"))
    reader.send(fetch_request(wired, 0, 12, max_wait_ms=500, min_bytes=100_000), 12)
    assert values_of(one(reader)) == [b"first"]


def both(wired: WiredBroker, version: int, name: str, **options: int) -> FetchRequest:
    """Returns a fetch of `orders` 0, and of a partition that does not exist."""
    request = fetch_request(wired, 0, version, **options)
    other = FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition(partition=7, partition_max_bytes=1000)])
    other.topic, other.topic_id = name, b"\x07" * 16
    request.topics.append(other)
    return request


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_an_unknown_partition_does_not_hurry_the_others(wired: WiredBroker, version: int) -> None:
    reader = wired.connect()
    reader.send(both(wired, version, "orders", max_wait_ms=500), version)
    wired.host.time.run_for(499)
    assert reader.received() == []
    wired.host.time.run_for(1)
    response = one(reader)
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [row.error_code for topic in response.responses for row in topic.partitions] == [0, code]


def test_only_unknown_partitions_are_answered_at_once(wired: WiredBroker) -> None:
    request = both(wired, 12, "missing", max_wait_ms=500)
    del request.topics[0]
    reader = wired.connect()
    reader.send(request, 12)
    assert one(reader).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [12, 13])
def test_the_deletion_of_a_topic_answers_those_who_wait_for_it(wired: WiredBroker, version: int) -> None:
    reader = wired.connect()
    reader.send(fetch_request(wired, 0, version, max_wait_ms=60_000), version)
    wired.delete_topic("orders")
    row = one(reader).responses[0].partitions[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(wired.broker.replicas.purgatory) == 0


def test_a_session_without_partitions_is_closed(wired: WiredBroker) -> None:
    client = wired.connect()
    full = client.call(fetch_request(wired, 0, 12, session_epoch=0), 12, FetchResponse)
    forgotten = [FetchRequest.ForgottenTopic(topic="orders", partitions=[0])]
    request = incremental(full.session_id, 1, max_wait_ms=500, forgotten_topics_data=forgotten)
    closed = client.call(request, 12, FetchResponse)
    assert (closed.error_code, closed.session_id, closed.responses) == (0, 0, [])
    gone = client.call(incremental(full.session_id, 2), 12, FetchResponse)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_what_is_named_and_forgotten_at_once_is_forgotten(wired: WiredBroker) -> None:
    client = wired.connect()
    full = client.call(fetch_request(wired, 0, 12, session_epoch=0), 12, FetchResponse)
    second = fetch_request(wired, 0, 12).topics
    second[0].partitions[0].partition = 1
    forgotten = [FetchRequest.ForgottenTopic(topic="orders", partitions=[1])]
    request = incremental(full.session_id, 1, topics=second, forgotten_topics_data=forgotten)
    assert client.call(request, 12, FetchResponse).session_id == full.session_id
    produce(wired, wired.connect(), batch_of(b"x"), index=1)
    assert client.call(incremental(full.session_id, 2), 12, FetchResponse).responses == []


def test_the_last_epoch_closes_a_session(wired: WiredBroker) -> None:
    client = wired.connect()
    full = client.call(fetch_request(wired, 0, 12, session_epoch=0), 12, FetchResponse)
    last = client.call(incremental(full.session_id, -1), 12, FetchResponse)
    assert (last.error_code, last.session_id) == (0, 0)
    assert len(wired.broker.services.fetch_sessions) == 0


def test_a_session_that_goes_on_meanwhile_does_not_answer_the_earlier_request(wired: WiredBroker) -> None:
    first, second = wired.connect(), wired.connect()
    full = first.call(fetch_request(wired, 0, 12, session_epoch=0), 12, FetchResponse)
    first.send(incremental(full.session_id, 1, max_wait_ms=500), 12)
    assert second.call(incremental(full.session_id, 2), 12, FetchResponse).error_code == 0
    wired.host.time.run_for(500)
    late = one(first)
    assert (late.error_code, late.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, full.session_id)


def test_a_session_that_has_everything_gets_changes_without_records(wired: WiredBroker) -> None:
    client = wired.connect()
    produce(wired, client, batch_of(b"x", b"y"))
    request = fetch_request(wired, 2, 10, session_epoch=0)
    request.topics[0].partitions[0].current_leader_epoch = 0
    full = client.call(request, 10, FetchResponse)
    epochs = itertools.count(1)

    def poll(*topics: FetchRequest.FetchTopic) -> list[tuple[int, int]]:
        # Before version 11 (KIP-392) only leaders serve consumers.
        request = incremental(full.session_id, next(epochs), topics=list(topics))
        response = client.call(request, 10, FetchResponse)
        return [(row.error_code, row.log_start_offset) for topic in response.responses for row in topic.partitions]

    assert [poll(), poll()] == [[], []]
    leader = partition(wired)
    leader.delete_records_before(1)
    assert [poll(), poll()] == [[(0, 1)], []]
    assert leader.image is not None
    leader.become_leader(leader.image._replace(leader_epoch=1))
    assert [poll(), poll()] == [[(ErrorCode.FENCED_LEADER_EPOCH, -1)]] * 2
    request.topics[0].partitions[0].current_leader_epoch = 1
    assert [poll(request.topics[0]), poll()] == [[(0, 1)], []]
    leader.become_follower(leader.image._replace(leader=2))
    assert poll() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    leader.become_leader(leader.image._replace(leader=1))
    assert [poll(), poll()] == [[(0, 1)], []]
    wired.delete_topic("orders")
    assert poll() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    wired.create_topic("orders")
    assert poll() == [(ErrorCode.UNKNOWN_LEADER_EPOCH, -1)]


def test_a_topic_id_that_becomes_known_is_found_by_the_session(
    wired: WiredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = wired.connect()
    request = fetch_request(wired, 0, 13, session_epoch=0)
    later = b"\x05" * 16
    request.topics[0].topic_id = later
    full = client.call(request, 13, FetchResponse)
    assert full.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    again = client.call(incremental(full.session_id, 1), 13, FetchResponse)
    assert again.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID, "errors are told every time"
    orders = wired.broker.metadata.image.topics_by_name["orders"]
    monkeypatch.setattr(wired.broker.replicas, "topic_of", {later: orders}.get)
    known = client.call(incremental(full.session_id, 2), 13, FetchResponse)
    assert known.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_reader_ahead_of_the_leader_gets_the_point_of_divergence(wired: WiredBroker) -> None:
    client = wired.connect()
    produce(wired, client, batch_of(b"x"))
    request = fetch_request(wired, 5, 12)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    row = client.call(request, 12, FetchResponse).responses[0].partitions[0]
    assert row.error_code == 0
    assert row.diverging_epoch is not None
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 1)


@pytest.mark.parametrize("replica_id, seen", [(-1, []), (-2, []), (3, [b"x"])])
def test_only_a_follower_sees_beyond_the_high_watermark(wired: WiredBroker, replica_id: int, seen: list[bytes]) -> None:
    leader = partition(wired)
    assert leader.image is not None
    leader.become_leader(leader.image._replace(replicas=(1, 3), directories=(bytes(16),) * 2))
    partition(wired).log.append_as_leader(batch_of(b"x"), 0, wall_ms=wired.host.clock.wall_ms())
    request = fetch_request(wired, 0, 12)
    request.replica_id = replica_id
    assert values_of(wired.connect().call(request, 12, FetchResponse)) == seen


@pytest.mark.parametrize("epoch, code", [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_follower_that_is_not_assigned_reads_nothing(wired: WiredBroker, epoch: int, code: ErrorCode) -> None:
    produce(wired, wired.connect(), batch_of(b"x"))
    request = fetch_request(wired, 0, 12)
    request.replica_id = 5
    request.topics[0].partitions[0].current_leader_epoch = epoch
    row = wired.connect().call(request, 12, FetchResponse).responses[0].partitions[0]
    assert (row.error_code, row.high_watermark, bytes(row.records or b"")) == (code, -1, b"")


@pytest.mark.parametrize("version", [9, 12, 15, 16, 18])
def test_a_client_with_an_old_leader_epoch_gets_the_leader(wired: WiredBroker, version: int) -> None:
    leader = partition(wired)
    leader.leader_epoch = 3
    request = fetch_request(wired, 0, version)
    request.topics[0].partitions[0].current_leader_epoch = 2
    response = wired.connect().call(request, version, FetchResponse)
    row = response.responses[0].partitions[0]
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    if version < 16:
        assert (row.current_leader, response.node_endpoints) == (None, [])
        return
    assert row.current_leader is not None
    assert row.current_leader.leader_id == 1
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (1, "localhost", 9092, None)


def test_the_topic_of_another_id_is_not_read(wired: WiredBroker) -> None:
    before = topic_id(wired, "orders")
    client = wired.connect()
    full = client.call(fetch_request(wired, 0, 13, session_epoch=0), 13, FetchResponse)
    wired.delete_topic("orders")
    wired.create_topic("orders", 2)
    assert topic_id(wired, "orders") != before
    produce(wired, client, batch_of(b"new"))
    row = client.call(incremental(full.session_id, 1), 13, FetchResponse).responses[0].partitions[0]
    assert (row.error_code, row.records) == (ErrorCode.INCONSISTENT_TOPIC_ID, b"")


@pytest.mark.parametrize("replica_id", [-1, 3])
def test_what_waited_leaves_nothing_to_the_collector(wired: WiredBroker, replica_id: int) -> None:
    """An answer may be a megabyte, and the collector comes rarely."""
    leader = partition(wired)
    assert leader.image is not None
    leader.become_leader(leader.image._replace(replicas=(1, 3), directories=(bytes(16),) * 2))
    reader, writer = wired.connect(), wired.connect()
    gc.collect()
    gc.disable()
    try:
        for offset in range(3):
            request = fetch_request(wired, offset, 12, max_wait_ms=5_000)
            request.replica_id = replica_id
            reader.send(request, 12)
            assert reader.received() == []
            produce(wired, writer, batch_of(b"x"))
            wired.host.time.run_for(1)
            assert len(reader.received()) == 1
        left = [found for found in gc.get_objects() if isinstance(found, InFlight)]
        assert [found for found in left if found.connection in (reader.core, writer.core)] == []
    finally:
        gc.enable()
