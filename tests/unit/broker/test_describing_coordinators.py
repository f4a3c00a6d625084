"""ConsumerGroupDescribe and DescribeTransactions: what a whole broker answers, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.wired import WiredBroker, WiredClient

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: Bits of READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS; the value if nobody asked.
_OPERATIONS, _NOT_REQUESTED = 0b1101_0100_1000, -(1 << 31)
_GROUP, _TRANSACTION = 0, 1


def broker(protocols: str = "classic,consumer") -> WiredBroker:
    wired = WiredBroker(
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        transaction_state_log_num_partitions="1",
        group_coordinator_rebalance_protocols=protocols,
    )
    wired.create_topic("orders", 3)
    return wired


def until(wired: WiredBroker, client: WiredClient, key: str, key_type: int, served: Callable[[], bool]) -> None:
    for _ in range(100):
        if served():
            return
        client.call(FindCoordinatorRequest(key=key, key_type=key_type), 2, FindCoordinatorResponse)
        wired.host.time.run_for(50)
    raise AssertionError("the coordinator never serves")


# Groups.


def describe_groups(client: WiredClient, *names: str, requested: bool, version: int = 1) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=requested)
    return list(client.call(request, version, ConsumerGroupDescribeResponse).groups)


def join(wired: WiredBroker, client: WiredClient) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )

    def served() -> bool:
        return client.call(request, 1, ConsumerGroupHeartbeatResponse).error_code == ErrorCode.NONE

    until(wired, client, "g", _GROUP, served)


@pytest.mark.parametrize("version", [0, 1])
def test_groups_and_their_operations_if_requested(version: int) -> None:
    wired = broker()
    client = wired.connect()
    join(wired, client)
    found, missing = describe_groups(client, "g", "nobodys", requested=True, version=version)
    assert (found.error_code, found.group_state, found.authorized_operations) == (0, "Stable", _OPERATIONS)
    (member,) = found.members
    ((name, partitions),) = [(row.topic_name, row.partitions) for row in member.assignment.topic_partitions]
    assert (member.member_id, name, sorted(partitions)) == ("m", "orders", [0, 1, 2])
    assert (missing.error_code, missing.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, _NOT_REQUESTED)
    (found,) = describe_groups(client, "g", requested=False, version=version)
    assert found.authorized_operations == _NOT_REQUESTED


def test_a_broker_without_the_consumer_protocol_describes_no_group() -> None:
    client = broker("classic").connect()
    rows = describe_groups(client, "a", "b", requested=True)
    assert [(row.group_id, row.error_code) for row in rows] == [
        ("a", ErrorCode.UNSUPPORTED_VERSION),
        ("b", ErrorCode.UNSUPPORTED_VERSION),
    ]


# Transactions.


class Producer:
    """A transactional producer of "t"."""

    def __init__(self, wired: WiredBroker) -> None:
        self.wired = wired
        self.client = wired.connect()
        self.producer_id = -1

    def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=20_000, producer_id=-1, producer_epoch=-1
        )

        def served() -> bool:
            answer = self.client.call(request, 4, InitProducerIdResponse)
            self.producer_id = answer.producer_id
            return answer.error_code == ErrorCode.NONE

        until(self.wired, self.client, "t", _TRANSACTION, served)

    def add(self, *partitions: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=list(partitions))
            ],
        )
        answer = self.client.call(request, 3, AddPartitionsToTxnResponse)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert {row.partition_error_code for row in rows} == {0}

    def end(self) -> None:
        request = EndTxnRequest(transactional_id="t", producer_id=self.producer_id, producer_epoch=0, committed=False)
        assert self.client.call(request, 3, EndTxnResponse).error_code == 0
        self.wired.host.time.run_for(500)

    def describe(self, *names: str) -> list[Any]:
        request = DescribeTransactionsRequest(transactional_ids=list(names))
        return list(self.client.call(request, 0, DescribeTransactionsResponse).transaction_states)


def test_a_transaction_from_its_producer_to_its_end() -> None:
    producer = Producer(broker())
    producer.init()
    (found,) = producer.describe("t")
    assert (found.error_code, found.transaction_state, found.transaction_start_time_ms) == (0, "Empty", -1)
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (producer.producer_id, 0, 20_000)
    assert found.topics == []

    began_ms = producer.wired.host.clock.wall_ms()
    producer.add(2)
    producer.add(0, 1)
    (found,) = producer.describe("t")
    assert found.transaction_state == "Ongoing"
    assert 0 <= found.transaction_start_time_ms - began_ms <= 100
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0, 1, 2])]

    producer.end()
    (found,) = producer.describe("t")
    assert (found.transaction_state, found.topics) == ("CompleteAbort", [])


def test_rows_of_ids_that_cannot_be_described() -> None:
    producer = Producer(broker())
    producer.init()
    rows = producer.describe("unknown", "t", "", "t")
    assert [(row.transactional_id, row.error_code) for row in rows] == [
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("t", ErrorCode.NONE),
        ("", ErrorCode.INVALID_REQUEST),
    ]
