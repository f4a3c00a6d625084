"""Two protocol cores back to back: produce and fetch through the whole broker, with no socket and no real time."""

from __future__ import annotations

import itertools

import pytest
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce, produce_request, values_of

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceResponse


@pytest.fixture
def wired() -> WiredBroker:
    wired = WiredBroker()
    wired.create_topic("orders", 1)
    return wired


@pytest.mark.parametrize("version", range(3, 14))
def test_what_is_produced_is_fetched(wired: WiredBroker, version: int) -> None:
    client = wired.connect()
    assert produce(wired, client, batch_of(b"a", b"b"), version) == (0, 0)
    assert produce(wired, client, batch_of(b"c"), version, acks=1) == (0, 2)
    fetch_version = min(version + 4, 18)
    response = client.call(fetch_request(wired, 0, fetch_version), fetch_version, FetchResponse)
    row = response.responses[0].partitions[0]
    assert (row.error_code, row.high_watermark) == (0, 3)
    assert values_of(response) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", range(3, 14))
def test_requests_alike_but_for_their_records_are_answered_alike(wired: WiredBroker, version: int, acks: int) -> None:
    """The second and later ones take the shortcut; every answer is what a fresh connection gets."""
    client = wired.connect()
    for number in range(4):
        batch = batch_of(*(b"%d" % number * (1 + 50 * number) for _ in range(1 + number)))
        offset = wired.broker.replicas.leader("orders", 0).log.log_end_offset
        assert produce(wired, client, batch, version, acks=acks) == (0, offset)
        assert produce(wired, wired.connect(), batch, version, acks=acks) == (0, offset + 1 + number)
    assert client.core.shortcut is not None
    broken = bytearray(batch_of(b"x"))
    broken[65] ^= 1
    assert produce(wired, client, bytes(broken), version, acks=acks) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert produce(wired, client, b"", version, acks=acks)[0] == ErrorCode.INVALID_RECORD
    end = wired.broker.replicas.leader("orders", 0).log.log_end_offset
    assert produce(wired, client, batch_of(b"after"), version, acks=acks) == (0, end)


def test_the_shortcut_does_not_outlive_its_topic(wired: WiredBroker) -> None:
    client = wired.connect()
    request = produce_request(wired, batch_of(b"x"), 13)
    for _ in range(2):
        assert client.call(request, 13, ProduceResponse).responses[0].partition_responses[0].error_code == 0
    wired.delete_topic("orders")
    wired.create_topic("orders", 1)
    gone = client.call(request, 13, ProduceResponse).responses[0].partition_responses[0]
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(wired, client, batch_of(b"y"), 13) == (0, 0)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_waits_for_data_and_is_woken_by_it(wired: WiredBroker, version: int) -> None:
    reader, writer = wired.connect(), wired.connect()
    reader.send(fetch_request(wired, 0, version, max_wait_ms=500), version)
    wired.host.time.run_for(100)
    assert reader.received() == []
    produce(wired, writer, batch_of(b"now"))
    ((_, response),) = reader.received()
    assert isinstance(response, FetchResponse)
    assert values_of(response) == [b"now"]


def test_a_fetch_without_data_is_answered_when_its_time_is_over(wired: WiredBroker) -> None:
    reader = wired.connect()
    reader.send(fetch_request(wired, 0, 12, max_wait_ms=500), 12)
    wired.host.time.run_for(499)
    assert reader.received() == []
    wired.host.time.run_for(1)
    ((_, response),) = reader.received()
    assert isinstance(response, FetchResponse)
    assert values_of(response) == []


def test_min_bytes_are_waited_for(wired: WiredBroker) -> None:
    reader, writer = wired.connect(), wired.connect()
    one = batch_of(b"x" * 100)
    reader.send(fetch_request(wired, 0, 12, max_wait_ms=5000, min_bytes=len(one) * 3), 12)
    for count in range(3):
        assert reader.received() == [], count
        produce(wired, writer, one)
    ((_, response),) = reader.received()
    assert isinstance(response, FetchResponse)
    assert len(values_of(response)) == 3


def test_answers_leave_in_the_order_of_the_requests(wired: WiredBroker) -> None:
    client, writer = wired.connect(), wired.connect()
    first = client.send(fetch_request(wired, 0, 12, max_wait_ms=500), 12)
    second = client.send(produce_request(wired, batch_of(b"mine"), 9), 9)
    answers = client.received()
    assert [correlation_id for correlation_id, _ in answers] == [first, second]
    assert produce(wired, writer, batch_of(b"other")) == (0, 1)


@pytest.mark.parametrize("version", range(3, 14))
def test_an_error_is_reported_in_every_version(wired: WiredBroker, version: int) -> None:
    broken = bytearray(batch_of(b"x"))
    broken[65] ^= 1
    assert produce(wired, wired.connect(), bytes(broken), version) == (ErrorCode.CORRUPT_MESSAGE, -1)
    missing = produce(wired, wired.connect(), batch_of(b"x"), version, index=5)
    assert missing == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert wired.broker.replicas.leader("orders", 0).log.log_end_offset == 0


def test_acks_zero_is_not_answered(wired: WiredBroker) -> None:
    client = wired.connect()
    client.send(produce_request(wired, batch_of(b"quiet"), 9, acks=0), 9)
    assert produce(wired, client, batch_of(b"loud")) == (0, 1)


def test_acks_zero_with_an_error_closes_the_connection(wired: WiredBroker) -> None:
    client = wired.connect()
    client.send(produce_request(wired, batch_of(b"quiet"), 9, acks=0, index=7), 9)
    assert client.link.is_closed


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(wired: WiredBroker, acks: int) -> None:
    assert produce(wired, wired.connect(), batch_of(b"x"), acks=acks) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)


def test_a_repeated_idempotent_batch_gets_its_first_offset(wired: WiredBroker) -> None:
    client = wired.connect()
    batches = [batch_of(b"%d" % number, producer_id=7, base_sequence=number) for number in range(6)]
    assert [produce(wired, client, batch) for batch in batches] == [(0, number) for number in range(6)]
    assert [produce(wired, client, batch) for batch in batches[1:]] == [(0, number) for number in range(1, 6)]
    late = batch_of(b"gap", producer_id=7, base_sequence=9)
    assert produce(wired, client, late)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wired.broker.replicas.leader("orders", 0).log.log_end_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_records_producers_and_topics(wired: WiredBroker, clean: bool) -> None:
    for number in range(3):
        batch = batch_of(b"%d" % number, producer_id=7, base_sequence=number)
        assert produce(wired, wired.connect(), batch) == (0, number)
    wired.restart(clean=clean)
    client = wired.connect()
    again = batch_of(b"2", producer_id=7, base_sequence=2)
    assert produce(wired, client, again) == (0, 2), "recognised after the restart"
    assert produce(wired, client, batch_of(b"3", producer_id=7, base_sequence=3)) == (0, 3)
    assert values_of(client.call(fetch_request(wired, 0, 12), 12, FetchResponse)) == [b"0", b"1", b"2", b"3"]


def test_a_session_answers_only_what_changed(wired: WiredBroker) -> None:
    client, writer = wired.connect(), wired.connect()
    full = client.call(fetch_request(wired, 0, 12, session_epoch=0), 12, FetchResponse)
    assert full.session_id > 0
    assert len(full.responses) == 1
    epochs = itertools.count(1)

    def poll() -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=full.session_id, session_epoch=next(epochs)
        )
        return client.call(request, 12, FetchResponse)

    assert poll().responses == []
    produce(wired, writer, batch_of(b"x"))
    assert values_of(poll()) == [b"x"]
    bad = client.call(
        FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=full.session_id, session_epoch=77),
        12,
        FetchResponse,
    )
    assert bad.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(
    "offset, code", [(0, 0), (2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE), (-5, ErrorCode.OFFSET_OUT_OF_RANGE)]
)
def test_offsets_out_of_range(wired: WiredBroker, offset: int, code: int) -> None:
    client = wired.connect()
    produce(wired, client, batch_of(b"a", b"b"))
    response = client.call(fetch_request(wired, offset, 12), 12, FetchResponse)
    row = response.responses[0].partitions[0]
    assert row.error_code == code
    assert row.high_watermark == (-1 if code else 2)


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_by_time(wired: WiredBroker, version: int) -> None:
    client = wired.connect()
    produce(wired, client, batch_of(b"a", b"b", b"c"))

    def call(timestamp: int) -> tuple[int, int, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="orders",
                    partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
                )
            ],
        )
        row = client.call(request, version, ListOffsetsResponse).topics[0].partitions[0]
        return row.error_code, row.timestamp, row.offset

    base = 1_735_689_600_000
    assert call(-1) == (0, -1, 3)
    assert call(-2) == (0, -1, 0)
    assert call(base + 1) == (0, base + 1, 1)
    assert call(base + 9) == (0, -1, -1)
    unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert call(-3) == ((0, base + 2, 2) if version >= 7 else unsupported)
    assert call(-4) == ((0, -1, 0) if version >= 8 else unsupported)
    assert call(-5) == ((0, -1, -1) if version >= 9 else unsupported)
