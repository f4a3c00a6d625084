"""Batches that would hold the loop too long: opened in a thread, with only their own connection waiting, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.batches import with_right_crc
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce, produce_request, values_of

from barnabas.broker.peers.partition_verification import Codes, Verification
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.records.compression import Codec
from barnabas.simulation.host import EPOCH_WALL_MS

VERSION = 11


def bomb(value: bytes = b"x", *, size: int = 3_000_000, key: bytes | None = b"k", **options: Any) -> bytes:
    """Returns some kilobytes that decompress to some megabytes."""
    if "base_sequence" in options:
        options |= {"producer_id": 7, "producer_epoch": 0}
    made = [Record(0, EPOCH_WALL_MS, key, value * size)]
    return bytes(encode_batch(made, codec=Codec.GZIP, **options))


@pytest.fixture
def wired() -> WiredBroker:
    wired = WiredBroker()
    wired.create_topic("orders", partitions=3)
    return wired


def answers(wired: WiredBroker, client: WiredClient, count: int) -> list[tuple[int, int, int]]:
    """Returns (correlation id, error code, base offset) of the next answers."""
    found: list[tuple[int, int, int]] = []
    for _ in range(200):
        for sent, response in client.received():
            assert isinstance(response, ProduceResponse)
            row = response.responses[0].partition_responses[0]
            found.append((sent, row.error_code, row.base_offset))
        if len(found) >= count:
            return found
        wired.host.time.run_for(1)
    raise AssertionError(f"{len(found)} of {count} answers; {wired.closes.causes}")


def sizes(wired: WiredBroker) -> list[int]:
    response = wired.connect().call(fetch_request(wired, 0, 12), 12, FetchResponse)
    return [len(value or b"") for value in values_of(response)]


def test_only_its_own_connection_waits_and_its_batches_keep_their_order(wired: WiredBroker) -> None:
    slow, quick = wired.connect(), wired.connect()
    sent = [slow.send(produce_request(wired, data, VERSION), VERSION) for data in (bomb(), batch_of(b"ab"))]
    assert slow.received() == []
    assert produce(wired, quick, batch_of(b"q")) == (0, 0), "the other one is served meanwhile"
    assert answers(wired, slow, 2) == [(sent[0], 0, 1), (sent[1], 0, 2)]
    assert sizes(wired) == [1, 3_000_000, 2]


def test_a_batch_behind_one_on_the_shortcut_waits_too(wired: WiredBroker) -> None:
    client = wired.connect()
    assert produce(wired, client, batch_of(b"a")) == (0, 0)
    sent = [client.send(produce_request(wired, data, VERSION), VERSION) for data in (bomb(), batch_of(b"ab"), bomb())]
    assert answers(wired, client, 3) == [(sent[0], 0, 1), (sent[1], 0, 2), (sent[2], 0, 3)]


def test_sequences_are_checked_when_it_is_appended(wired: WiredBroker) -> None:
    client = wired.connect()
    assert produce(wired, client, bomb(base_sequence=0)) == (0, 0)
    assert produce(wired, client, bomb(base_sequence=0)) == (0, 0), "a duplicate"
    code, _ = produce(wired, client, bomb(base_sequence=5))
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wired, client, bomb(base_sequence=1)) == (0, 1)


def test_partitions_of_one_request_are_answered_together(wired: WiredBroker) -> None:
    rows = [(0, batch_of(b"a")), (1, bomb()), (2, bomb(key=None))]
    topic = ProduceRequest.TopicProduceData(
        name="orders", partition_data=[ProduceRequest.PartitionProduceData(index=i, records=data) for i, data in rows]
    )
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    response = wired.connect().call(request, VERSION, ProduceResponse)
    found = [(row.index, row.error_code, row.base_offset) for row in response.responses[0].partition_responses]
    assert found == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]


def test_a_refusal_comes_with_its_records(wired: WiredBroker) -> None:
    wired.create_topic("keyed", cleanup_policy="compact")
    topic = ProduceRequest.TopicProduceData(
        name="keyed", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=bomb(key=None))]
    )
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    row = wired.connect().call(request, VERSION, ProduceResponse).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in row.record_errors] == [0]


def test_settings_that_change_meanwhile_count(wired: WiredBroker) -> None:
    client = wired.connect()
    sent = client.send(produce_request(wired, bomb(key=None), VERSION), VERSION)
    partition = wired.broker.replicas.find("orders", 0)
    assert partition is not None
    config = partition.log.config
    partition.log.config = type(config)(cleanup_policy=("compact",))
    assert answers(wired, client, 1) == [(sent, ErrorCode.INVALID_RECORD, -1)]


class Coordinator:
    """A transaction verifier: the first request is part of the transaction, no other one."""

    is_enabled = True

    def __init__(self, wired: WiredBroker) -> None:
        self._timers = wired.host.timers
        self.requested: list[Verification] = []

    def verify(self, verification: Verification, answered: Callable[[Codes], None]) -> None:
        self.requested.append(verification)
        code = ErrorCode.NONE if len(self.requested) == 1 else ErrorCode.INVALID_TXN_STATE
        self._timers.call_soon(lambda: answered(dict.fromkeys(verification.partitions, code)))


def test_a_transaction_that_ends_meanwhile_is_noticed(wired: WiredBroker) -> None:
    """The transaction is verified before the batch is validated, and again before it is appended."""
    client = wired.connect()
    coordinator: Any = Coordinator(wired)
    client.core._dispatcher.services.verifier = coordinator  # type: ignore[attr-defined]
    request = produce_request(wired, bomb(base_sequence=0, transactional=True), VERSION)
    request.transactional_id = "t"
    sent = client.send(request, VERSION)
    assert answers(wired, client, 1) == [(sent, ErrorCode.INVALID_TXN_STATE, -1)]
    assert len(coordinator.requested) == 2
    assert sizes(wired) == []


def test_a_topic_that_is_deleted_meanwhile_is_not_there(wired: WiredBroker) -> None:
    client = wired.connect()
    client.send(produce_request(wired, bomb(), VERSION), VERSION)
    wired.broker.replicas.find("orders", 0).go_offline(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # type: ignore[union-attr]
    ((_, code, _),) = answers(wired, client, 1)
    assert code == ErrorCode.KAFKA_STORAGE_ERROR


def test_who_hangs_up_leaves_nothing(wired: WiredBroker) -> None:
    client = wired.connect()
    client.send(produce_request(wired, bomb(), VERSION), VERSION)
    waiting = wired.connect()
    waiting.send(produce_request(wired, bomb(), VERSION), VERSION)
    assert len(wired.broker.replicas.openings) == 2
    client.core.closed()
    waiting.core.closed()
    wired.host.time.run_for(100)
    assert len(wired.broker.replicas.openings) == 0
    assert sizes(wired) == []


def test_no_reply_is_sent_where_none_is_expected(wired: WiredBroker) -> None:
    client = wired.connect()
    client.send(produce_request(wired, bomb(), VERSION, acks=0), VERSION)
    sent = client.send(produce_request(wired, batch_of(b"ab"), VERSION), VERSION)
    assert answers(wired, client, 1) == [(sent, 0, 1)]
    client.send(produce_request(wired, bomb()[:-9] + bytes(9), VERSION, acks=0), VERSION)
    wired.host.time.run_for(100)
    assert client.core.is_closed, "a refusal without an answer ends the connection"


def test_a_small_batch_is_opened_on_the_spot(wired: WiredBroker) -> None:
    client = wired.connect()
    client.send(produce_request(wired, bomb(size=10_000), VERSION), VERSION)
    assert len(client.received()) == 1


def test_the_broker_heeds_its_limits() -> None:
    wired = WiredBroker(
        barnabas_max_batch_records="2",
        barnabas_max_decompressed_batch_bytes="100000",
        max_decompressed_message_bytes="50000",
    )
    wired.create_topic("orders")
    client = wired.connect()
    assert produce(wired, client, batch_of(b"a", b"b"))[0] == 0
    assert produce(wired, client, batch_of(b"a", b"b", b"c"))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wired, client, bomb(size=200_000))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wired, client, bomb(size=60_000))[0] == ErrorCode.INVALID_RECORD
    assert produce(wired, client, bomb(size=40_000))[0] == 0


@pytest.mark.parametrize("verify, code", [("true", 87), ("uncompressed", 87), ("FALSE", 0)])
def test_who_trusts_producers_says_so(verify: str, code: int) -> None:
    wired = WiredBroker(barnabas_verify_records=verify)
    wired.create_topic("orders")
    wrong = bytearray(batch_of(b"a"))
    wrong[61] += 2  # the length of the record
    assert produce(wired, wired.connect(), bytes(with_right_crc(wrong)))[0] == code


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_nobody_writes_to_the_topics_of_coordinators(name: str) -> None:
    """The client id with which Apache Kafka's tools could once write to them makes no difference."""
    wired = WiredBroker()
    wired.create_topic(name)
    for client_id in ("wired", "__admin_client"):
        client = WiredClient(wired, client_id)
        topic = ProduceRequest.TopicProduceData(
            name=name, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch_of(b"x"))]
        )
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        row = client.call(request, VERSION, ProduceResponse).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
