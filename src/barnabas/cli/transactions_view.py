"""Queries about transactions: coordinators report on their transactional ids, leaders on their producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient

from barnabas.cli.clients import TIMEOUT_S, admin_client, result
from barnabas.cli.raw_requests import Wire
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

M = TypeVar("M", bound=Message)

_TRANSACTION = 1
_LIST_VERSION, _FIND_VERSION = 2, 4


class Listed(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Described(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    #: The start of the open transaction; -1 if there is none.
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    #: The first offset of the producer's open transaction in the partition; -1 if there is none.
    start_offset: int


class ClusterRequests:
    """Requests to the brokers of a cluster, each over its own connection."""

    def __init__(self, bootstrap: str, properties: Iterable[str] | None) -> None:
        self._admin: AdminClient = admin_client(bootstrap, properties)
        described = result(self._admin.describe_cluster(request_timeout=TIMEOUT_S), "cannot describe the cluster")
        self._nodes = {node.id: (node.host, node.port) for node in described.nodes}

    def _call(self, broker_id: int, request: Message, version: int, expected: type[M]) -> M:
        with Wire(*self._nodes[broker_id]) as wire:
            return wire.call(request, version, expected)

    # -- coordinators

    def listed(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        open_for_ms: int = -1,
        pattern: str | None = None,
    ) -> list[Listed]:
        """Returns the transactions of all coordinators. Raises Failure while one of them is loading."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=open_for_ms,
            transactional_id_pattern=pattern,
        )
        found = []
        for broker_id in sorted(self._nodes):
            answer = self._call(broker_id, request, _LIST_VERSION, ListTransactionsResponse)
            if answer.unknown_state_filters:
                raise Failure(f"unknown state {', '.join(answer.unknown_state_filters)}")
            _check(answer.error_code, f"broker {broker_id} cannot list its transactions")
            found += [
                Listed(one.transactional_id, broker_id, one.producer_id, one.transaction_state)
                for one in answer.transaction_states
            ]
        return sorted(found)

    def describe(self, transactional_ids: Sequence[str]) -> list[Described]:
        by_coordinator: dict[int, list[str]] = {}
        for transactional_id, broker_id in self._coordinators(transactional_ids).items():
            by_coordinator.setdefault(broker_id, []).append(transactional_id)
        found = []
        for broker_id, ids in sorted(by_coordinator.items()):
            request = DescribeTransactionsRequest(transactional_ids=ids)
            for one in self._call(broker_id, request, 0, DescribeTransactionsResponse).transaction_states:
                _check(one.error_code, f"cannot describe {one.transactional_id}")
                partitions = tuple(TopicPartition(topic.topic, i) for topic in one.topics for i in topic.partitions)
                found.append(
                    Described(
                        one.transactional_id,
                        broker_id,
                        one.producer_id,
                        one.producer_epoch,
                        one.transaction_state,
                        one.transaction_timeout_ms,
                        one.transaction_start_time_ms,
                        partitions,
                    )
                )
        return found

    def _coordinators(self, transactional_ids: Sequence[str]) -> dict[str, int]:
        if not transactional_ids:
            return {}
        request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=list(transactional_ids))
        answer = self._call(min(self._nodes), request, _FIND_VERSION, FindCoordinatorResponse)
        for one in answer.coordinators:
            _check(one.error_code, f"no coordinator for {one.key}")
        return {one.key: one.node_id for one in answer.coordinators}

    # -- leaders

    def leaders(self, topic: str | None = None) -> dict[TopicPartition, int]:
        """Returns the leaders by partition, of one topic or of all; partitions without a leader are omitted."""
        metadata: Any = self._admin.list_topics(timeout=TIMEOUT_S)
        if topic is not None and (topic not in metadata.topics or metadata.topics[topic].error is not None):
            raise Failure(f"no topic {topic}")
        names = list(metadata.topics) if topic is None else [topic]
        return {
            TopicPartition(name, index): partition.leader
            for name in names
            for index, partition in metadata.topics[name].partitions.items()
            if partition.leader in self._nodes
        }

    def producers(self, leaders: dict[TopicPartition, int]) -> list[ProducerState]:
        """Returns the producers of these partitions, as their leaders report them."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for (topic, index), leader in leaders.items():
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
        found = []
        for broker_id, topics in sorted(by_leader.items()):
            requested = [
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
            answer = self._call(broker_id, DescribeProducersRequest(topics=requested), 0, DescribeProducersResponse)
            for described in answer.topics:
                for row in described.partitions:
                    partition = TopicPartition(described.name, row.partition_index)
                    _check(row.error_code, f"cannot describe the producers of {partition}")
                    found += [
                        ProducerState(
                            partition,
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.current_txn_start_offset,
                        )
                        for one in row.active_producers
                    ]
        return sorted(found)

    def abort(self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Writes an abort marker through the partition's leader."""
        leader = self.leaders(partition.topic).get(partition)
        if leader is None:
            raise Failure(f"{partition} has no leader")
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            coordinator_epoch=coordinator_epoch,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
        )
        answer = self._call(leader, WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        _check(answer.markers[0].topics[0].partitions[0].error_code, f"cannot abort in {partition}")


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise Failure(f"{what}: {ErrorCode(code).name}")
