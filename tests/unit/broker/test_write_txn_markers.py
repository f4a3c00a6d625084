"""WriteTxnMarkers: markers that are not committed in time are answered, as every other write."""

from __future__ import annotations

import pytest
from tests.unit.broker.test_failing_continuations import replicated

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.transactions.markers import VERSION_TAG
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.simulation.host import EPOCH_WALL_MS
from barnabas.storage.log import Origin


def markers(*topics: str) -> WriteTxnMarkersRequest:
    cls = WriteTxnMarkersRequest
    rows = [cls.WritableTxnMarkerTopic(name=topic, partition_indexes=[0]) for topic in topics]
    marker = cls.WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=False, topics=rows)
    return cls(markers=[marker])


@pytest.mark.parametrize("topics", [["orders"], ["canary", "orders", "nothing"]])
def test_what_no_follower_fetches_is_answered_after_the_request_timeout(topics: list[str]) -> None:
    """The second replica of `orders` never fetches, and the controller does not remove it from the ISR."""
    wired = replicated()
    client = wired.connect()
    begin_ms = wired.host.clock.now_ms()
    answer = client.call(markers(*topics), 1, WriteTxnMarkersResponse, within_ms=60_000)
    assert 30_000 <= wired.host.clock.now_ms() - begin_ms < 30_200
    expected = {
        "orders": ErrorCode.REQUEST_TIMED_OUT,
        "canary": ErrorCode.NONE,
        "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    told = {topic.name: topic.partitions[0].error_code for topic in answer.markers[0].topics}
    assert told == {topic: expected[topic] for topic in topics}
    assert not len(wired.broker.replicas.leader("orders", 0)._commit_waiters)


def test_committed_markers_are_answered_immediately() -> None:
    wired = replicated()
    answer = wired.connect().call(markers("canary"), 1, WriteTxnMarkersResponse, within_ms=100)
    assert [topic.partitions[0].error_code for topic in answer.markers[0].topics] == [ErrorCode.NONE]


def test_a_request_without_markers_is_answered() -> None:
    wired = replicated()
    answer = wired.connect().call(WriteTxnMarkersRequest(markers=[]), 1, WriteTxnMarkersResponse, within_ms=100)
    assert answer.markers == []


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (1, 0, ErrorCode.NONE),
        (2, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 1, ErrorCode.NONE),
    ],
)
def test_a_marker_of_the_second_version_has_a_higher_epoch_than_the_transaction(
    version: int, epoch: int, code: ErrorCode
) -> None:
    wired = replicated()
    record = Record(0, EPOCH_WALL_MS, b"k", b"v", [])
    batch = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    leader = wired.broker.replicas.leader("canary", 0)
    assert wired.broker.replicas.append_to(leader, batch, 1, EPOCH_WALL_MS, Origin.COORDINATOR).info is not None
    request = markers("canary")
    request.markers[0].producer_epoch = epoch
    request.markers[0].unknown_tags = ((VERSION_TAG, bytes([version])),)
    answer = wired.connect().call(request, 1, WriteTxnMarkersResponse, within_ms=100)
    assert answer.markers[0].topics[0].partitions[0].error_code == code
