"""WriteTxnMarkers (27), version 1: writes transaction markers to partitions led here.

The requests come from transaction coordinators, and from administrators for hanging transactions (KIP-664). A marker in
`__consumer_offsets` goes through the group coordinator, which applies or drops the pending offsets. The response is
sent when all markers are committed. A marker of version 2 of the protocol that would end the next transaction is
refused with INVALID_PRODUCER_EPOCH (`storage.marker_guard`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import INDEXES, ErrorRows
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.transactions.markers import version_of
from barnabas.coordinators.transactions.transitions import EPOCH_BUMP_SINCE
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.records.batch import encode_end_txn_marker
from barnabas.replication.partition import Partition
from barnabas.storage.log import Origin
from barnabas.storage.marker_guard import is_late_marker

ERROR_ROWS: Final = (ErrorRows("markers", "markers", inner=ErrorRows("topics", "topics", inner=INDEXES)),)


Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
Row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


#: Refused rows per step.
_ROWS_PER_STEP = 50


def handle(context: RequestContext, request: WriteTxnMarkersRequest, services: Services) -> Work:
    results: list[Result] = []
    count = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    # One slot more than there are rows: it is filled after the loop, so that no response is sent before all rows exist.
    gather: Gather[ErrorCode] = Gather(count + 1, lambda _: context.reply(WriteTxnMarkersResponse(markers=results)))
    slots = map(gather.slot, range(count))
    for marker in request.markers:
        result = Result(producer_id=marker.producer_id)
        results.append(result)
        for topic in marker.topics:
            rows: list[Row] = []
            result.topics.append(Topic(name=topic.name, partitions=rows))
            for index in topic.partition_indexes:
                row = Row(partition_index=index)
                rows.append(row)
                _write(services, marker, TopicPartition(topic.name, index), _code_of(row, next(slots)))
                # A row that is refused immediately costs little.
                if row.error_code == ErrorCode.NONE or len(rows) % _ROWS_PER_STEP == 0:
                    yield 1
        yield 1
    gather.slot(count)(ErrorCode.NONE)


def _code_of(row: Row, give: Callable[[ErrorCode], None]) -> Callable[[ErrorCode], None]:
    def done(code: ErrorCode) -> None:
        row.error_code = code
        give(code)

    return done


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
