"""WriteTxnMarkers (27), version 1: the end of transactions, written to partitions led here.

Asked by transaction coordinators, and by administrators for transactions that nobody ends (KIP-664). A marker in
`__consumer_offsets` goes through the groups' coordinator, which takes the offsets over or drops them. Answered when all
markers are committed. One that says that it belongs to version 2 of the protocol is refused with INVALID_PRODUCER_EPOCH
if it would end the next transaction (`storage.verification`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.transactions.markers import version_of
from barnabas.coordinators.transactions.transitions import EPOCH_BUMP_SINCE
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.records.batch import encode_end_txn_marker
from barnabas.replication.partition import Partition
from barnabas.storage.log import Origin
from barnabas.storage.verification import is_late_marker

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
Row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def handle(context: RequestContext, request: WriteTxnMarkersRequest, services: Services) -> None:
    rows: list[tuple[Marker, TopicPartition, Row]] = []
    results = []
    for marker in request.markers:
        result = Result(producer_id=marker.producer_id)
        for topic in marker.topics:
            answered = [Row(partition_index=index) for index in topic.partition_indexes]
            rows += [(marker, TopicPartition(topic.name, row.partition_index), row) for row in answered]
            result.topics.append(Topic(name=topic.name, partitions=answered))
        results.append(result)

    def finish(codes: Sequence[ErrorCode]) -> None:
        for (_, _, row), code in zip(rows, codes, strict=True):
            row.error_code = code
        context.reply(WriteTxnMarkersResponse(markers=results))

    gather: Gather[ErrorCode] = Gather(len(rows), finish)
    for place, (marker, partition, _) in enumerate(rows):
        _write(services, marker, partition, gather.slot(place))


def _write(services: Services, marker: Marker, partition: TopicPartition, done: Callable[[ErrorCode], None]) -> None:
    try:
        leader = services.replicas.leader(*partition)
    except RequestFailed as failure:
        done(failure.code)
        return
    if version_of(marker) >= EPOCH_BUMP_SINCE and is_late_marker(
        leader.log.producers, marker.producer_id, marker.producer_epoch
    ):
        done(ErrorCode.INVALID_PRODUCER_EPOCH)
        return
    wall_ms = services.host.clock.wall_ms()
    batch = encode_end_txn_marker(
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=wall_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    if partition.topic == GROUP_METADATA_TOPIC:
        services.groups.end_transaction(partition.partition, marker.producer_id, marker.transaction_result, batch, done)
    else:
        _append(services, leader, batch, wall_ms, done)


def _append(
    services: Services, leader: Partition, batch: bytearray, wall_ms: int, done: Callable[[ErrorCode], None]
) -> None:
    appended = services.replicas.append_to(leader, batch, -1, wall_ms, Origin.COORDINATOR)
    if appended.info is None:
        done(appended.error)
    else:
        leader.await_commit(appended.info.last_offset + 1, done)
