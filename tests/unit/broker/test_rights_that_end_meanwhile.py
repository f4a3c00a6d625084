"""Rights that end while a request waits: for a thread, the disk, a coordinator or its turn, or in an envelope. What it
does afterwards is judged by the rules of that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.cold import HeldWork, make_cold
from tests.support.secured import ALICE, SecuredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce, produce_request
from tests.unit.broker.test_deferred_batches import bomb
from tests.unit.broker.test_rights import created_code, creation, envelope, enveloped

from barnabas.broker.peers.partition_verification import Codes, Verification
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.host import EPOCH_WALL_MS

TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
PARTITIONS = 700


@pytest.fixture
def secured() -> SecuredBroker:
    secured = SecuredBroker(offsets_topic_num_partitions="1")
    secured.create_topic("orders", partitions=2)
    return secured


class Coordinator:
    """A transaction verifier that agrees when the test says so."""

    is_enabled = True

    def __init__(self, secured: SecuredBroker) -> None:
        self._asked: list[Callable[[], None]] = []
        secured.broker.services.verifier = self  # type: ignore[assignment]

    def verify(self, verification: Verification, answered: Callable[[Codes], None]) -> None:
        self._asked.append(lambda: answered(dict.fromkeys(verification.partitions, ErrorCode.NONE)))

    def agree(self) -> None:
        assert len(self._asked) == 1
        self._asked.pop()()


def end_of(secured: SecuredBroker, index: int = 0, topic: str = "orders") -> int:
    return secured.broker.replicas.leader(topic, index).log.log_end_offset


def held_reads(secured: SecuredBroker) -> HeldWork:
    """Makes reads of the first partition wait for the disk until the test finishes them."""
    log = secured.broker.replicas.leader("orders", 0).log
    log.roll()
    log.segments.release()
    secured.host.time.run_for(1_000)
    make_cold(secured.host.disk)
    held = HeldWork()
    secured.broker.replicas.cold_reads._blocking = held  # type: ignore[assignment]
    return held


def produced(secured: SecuredBroker, client: Any) -> list[int]:
    """Waits for the response to a Produce request. Returns its error codes."""
    for _ in range(200):
        for _, answer in client.received():
            assert isinstance(answer, ProduceResponse)
            return [row.error_code for topic in answer.responses for row in topic.partition_responses]
        secured.host.time.run_for(1)
    raise AssertionError(f"no response: {secured.closes.causes}")


@pytest.mark.parametrize("version", [11, 13])
def test_a_batch_that_is_validated_aside_is_not_appended_after_its_right_ended(
    secured: SecuredBroker, version: int
) -> None:
    """Guard S10: the other batch of the request was appended before, with the right."""
    secured.allow(WRITE, TOPIC, "orders")
    client = secured.connect_as(ALICE)
    request = produce_request(secured, bomb(), version)
    request.topic_data[0].partition_data.append(ProduceRequest.PartitionProduceData(index=1, records=batch_of(b"x")))
    client.send(request, version)
    secured.remove_rules(ALICE)
    assert client.received() == [], "it is being validated"
    assert produced(secured, client) == [REFUSED, 0]
    assert [end_of(secured, index) for index in (0, 1)] == [0, 1]


def transactional_batch() -> bytes:
    records = [Record(0, EPOCH_WALL_MS, b"k", b"v")]
    return bytes(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        ((TOPIC, "orders"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((AclResource.TRANSACTIONAL_ID, "t"), REFUSED),
    ],
)
def test_a_batch_whose_transaction_is_verified_is_not_appended_after_its_right_ended(
    secured: SecuredBroker, kept: tuple[AclResource, str], code: ErrorCode
) -> None:
    """Guard S10."""
    coordinator = Coordinator(secured)
    secured.allow(WRITE, TOPIC, "orders")
    secured.allow(WRITE, AclResource.TRANSACTIONAL_ID, "t")
    client = secured.connect_as(ALICE)
    request = produce_request(secured, transactional_batch(), 11)
    request.transactional_id = "t"
    client.send(request, 11)
    secured.remove_rules(ALICE)
    secured.allow(WRITE, *kept)
    coordinator.agree()
    assert produced(secured, client) == [code]
    assert end_of(secured) == 0


def test_a_long_request_appends_nothing_more_after_its_right_ended(secured: SecuredBroker) -> None:
    """Guard S10: its rows are appended in parts, each in a turn of its own."""
    secured.create_topic("wide", PARTITIONS)
    secured.host.time.run_for(1_000)
    secured.allow(WRITE, TOPIC, "wide")
    client = secured.connect_as(ALICE)
    rows = [ProduceRequest.PartitionProduceData(index=index, records=batch_of(b"v")) for index in range(PARTITIONS)]
    topic = ProduceRequest.TopicProduceData(name="wide", partition_data=rows)
    client.send(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 9)
    _end_right_after(secured, lambda: end_of(secured, 0, "wide") == 1)
    codes = produced(secured, client)
    appended = sum(end_of(secured, index, "wide") for index in range(PARTITIONS))
    assert 0 < appended < PARTITIONS
    assert codes == [0] * appended + [REFUSED] * (PARTITIONS - appended)


def _end_right_after(secured: SecuredBroker, has_begun: Callable[[], bool]) -> None:
    """Ends all rights of alice in the first turn after something has happened."""
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    index = authorizer.index

    def watch() -> None:
        if not has_begun():
            secured.host.timers.call_soon(watch)
            return
        index.update([(rule_id, None) for rule_id, rule in index.rules.items() if rule.principal == ALICE])
        authorizer._answers.clear()

    secured.host.timers.call_soon(watch)


def test_the_rows_of_a_long_request_that_are_left_are_refused_after_its_right_ended(secured: SecuredBroker) -> None:
    """Guard S10: requests of many rows are served in pieces."""
    secured.create_topic("wide", PARTITIONS)
    secured.host.time.run_for(1_000)
    admin = secured.connect()
    for index in range(PARTITIONS):
        topic = ProduceRequest.TopicProduceData(
            name="wide", partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch_of(b"v"))]
        )
        admin.call(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 9, ProduceResponse)
    secured.allow(DELETE, TOPIC, "wide")
    rows = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=1) for index in range(PARTITIONS)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="wide", partitions=rows)], timeout_ms=1_000
    )

    def start_of(index: int) -> int:
        return secured.broker.replicas.leader("wide", index).log.log_start_offset

    client = secured.connect_as(ALICE)
    _end_right_after(secured, lambda: start_of(0) == 1)
    answer = client.call(request, 2, DeleteRecordsResponse, within_ms=20_000)
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    deleted = sum(map(start_of, range(PARTITIONS)))
    assert 0 < deleted < PARTITIONS
    assert codes == [0] * deleted + [REFUSED] * (PARTITIONS - deleted)


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_that_waits_for_the_disk_gets_nothing_after_its_right_ended(
    secured: SecuredBroker, in_session: bool
) -> None:
    """Guard S10."""
    produce(secured, secured.connect(), batch_of(b"secret"))
    secured.allow(READ, TOPIC, "orders")
    client = secured.connect_as(ALICE)
    request = fetch_request(secured, 0, 12, session_epoch=0 if in_session else -1)
    if in_session:
        opened = client.call(fetch_request(secured, 1, 12, session_epoch=0), 12, FetchResponse)
        request.session_id, request.session_epoch = opened.session_id, 1
    held = held_reads(secured)
    client.send(request, 12)
    assert client.received() == [], "it waits for the disk"
    secured.remove_rules(ALICE)
    assert held.finish() > 0
    ((_, answer),) = client.received()
    assert isinstance(answer, FetchResponse)
    row = answer.responses[0].partitions[0]
    assert (row.error_code, row.records or b"") == (REFUSED, b"")


def test_a_fetch_of_a_replica_that_waits_gets_nothing_after_its_right_ended(secured: SecuredBroker) -> None:
    """Guards S1 and S10."""
    leader = secured.broker.replicas.leader("orders", 0)
    assert leader.image is not None
    leader.become_leader(leader.image._replace(replicas=(1, 3), directories=(bytes(16),) * 2))
    secured.allow(AclOperation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    client = secured.connect_as(ALICE)
    request = fetch_request(secured, 0, 12, max_wait_ms=2_000)
    request.replica_id = 3
    client.send(request, 12)
    assert client.received() == []
    secured.remove_rules(ALICE)
    produce(secured, secured.connect(), batch_of(b"secret"), acks=1)
    secured.host.time.run_for(2_000)
    ((_, answer),) = client.received()
    assert isinstance(answer, FetchResponse)
    row = answer.responses[0].partitions[0]
    assert (row.error_code, row.records or b"") == (REFUSED, b"")


@pytest.mark.parametrize("replica_id", [-1, 3])
def test_an_offset_is_not_told_if_the_right_ends_while_the_log_is_searched(
    secured: SecuredBroker, replica_id: int
) -> None:
    """Guard S10."""
    produce(secured, secured.connect(), batch_of(b"secret"))
    if replica_id < 0:
        secured.allow(AclOperation.DESCRIBE, TOPIC, "orders")
    else:
        secured.allow(AclOperation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    held = held_reads(secured)
    client = secured.connect_as(ALICE)
    row = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[row])
    client.send(ListOffsetsRequest(replica_id=replica_id, topics=[topic]), 7)
    assert client.received() == [], "it waits for the disk"
    secured.remove_rules(ALICE)
    assert held.finish() > 0
    ((_, answer),) = client.received()
    assert isinstance(answer, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.offset, found.timestamp) == (REFUSED, -1, -1)


def test_offsets_whose_transaction_is_verified_are_not_committed_after_the_right_ended(secured: SecuredBroker) -> None:
    """Guard S10."""
    admin = secured.connect()
    for _ in range(100):
        if not admin.call(FindCoordinatorRequest(key="g", key_type=0), 3, FindCoordinatorResponse).error_code:
            break
        secured.host.time.run_for(100)
    secured.host.time.run_for(500)
    coordinator = Coordinator(secured)
    for right in ((READ, TOPIC, "orders"), (READ, GROUP, "g"), (WRITE, AclResource.TRANSACTIONAL_ID, "t")):
        secured.allow(*right)
    rows = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5)
        for index in (0, 1)
    ]
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="orders", partitions=rows)
    request = TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=7, producer_epoch=0, topics=[topic], generation_id=-1
    )
    client = secured.connect_as(ALICE)
    client.send(request, 3)
    assert client.received() == []
    before = end_of(secured, 0, "__consumer_offsets")
    secured.remove_rules(ALICE)
    secured.allow(READ, GROUP, "g")
    secured.allow(WRITE, AclResource.TRANSACTIONAL_ID, "t")
    coordinator.agree()
    secured.host.time.run_for(100)
    ((_, answer),) = client.received()
    assert isinstance(answer, TxnOffsetCommitResponse)
    assert [row.error_code for row in answer.topics[0].partitions] == [REFUSED] * 2
    assert end_of(secured, 0, "__consumer_offsets") == before
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    found = admin.call(OffsetFetchRequest(group_id="g", topics=[wanted]), 7, OffsetFetchResponse)
    assert found.topics[0].partitions[0].committed_offset == -1


def test_a_request_under_way_in_an_envelope_is_judged_when_it_arrives(secured: SecuredBroker) -> None:
    """Guard S10: the broker that forwards a request does not judge it; the controller does, by its own rules."""
    secured.allow(AclOperation.CREATE, TOPIC, "one")
    secured.allow(AclOperation.CREATE, TOPIC, "two")
    under_way = [envelope(creation(name), 7, ALICE) for name in ("one", "two")]
    assert created_code(enveloped(secured, "User:broker", under_way[0])) == 0
    secured.remove_rules(ALICE)
    assert created_code(enveloped(secured, "User:broker", under_way[1])) == REFUSED
    assert "two" not in secured.broker.metadata.image.topics_by_name
