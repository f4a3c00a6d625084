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
from barnabas.coordinators.transactions.markers import version_of
from barnabas.coordinators.transactions.transitions import EPOCH_BUMP_SINCE
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.records.batch import encode_end_txn_marker
from barnabas.replication.commit_waiters import CommitWaiter
from barnabas.replication.partition import Partition
from barnabas.replication.purgatory import DelayedOperation
from barnabas.storage.log import Origin
from barnabas.storage.marker_guard import is_late_marker

ERROR_ROWS: Final = (ErrorRows("markers", "markers", inner=ErrorRows("topics", "topics", inner=INDEXES)),)


Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
Row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


#: The number of refused rows added per step.
_ROWS_PER_STEP = 50


def handle(context: RequestContext, request: WriteTxnMarkersRequest, services: Services) -> Work:
    results: list[Result] = []
    delayed = DelayedMarkers(context, results)
    count = 0
    for marker in request.markers:
        result = Result(producer_id=marker.producer_id)
        results.append(result)
        for topic in marker.topics:
            rows: list[Row] = []
            result.topics.append(Topic(name=topic.name, partitions=rows))
            for index in topic.partition_indexes:
                row = Row(partition_index=index)
                rows.append(row)
                _write(services, marker, TopicPartition(topic.name, index), delayed, row)
                count += 1
                # A row that is refused immediately costs little.
                if row.error_code == ErrorCode.NONE or count % _ROWS_PER_STEP == 0:
                    yield 1
        yield 1
    delayed.written(services)


class DelayedMarkers(DelayedOperation):
    """Markers that wait for the HW; partitions that are not committed after `request.timeout.ms` get
    REQUEST_TIMED_OUT, as in Kafka.
    """

    __slots__ = ("_context", "_results", "_rows", "_waiters", "_waiting")

    def __init__(self, context: RequestContext, results: list[Result]) -> None:
        super().__init__()
        self._context = context
        self._results = results
        #: The rows without a result, by their number; 0 with None stands for the markers that are not written yet.
        self._waiting: dict[int, Row | None] = {0: None}
        self._rows = 0
        self._waiters: list[CommitWaiter] = []

    def slot(self, row: Row) -> Callable[[ErrorCode], None]:
        """Returns the callback for the result of a row."""
        self._rows += 1
        number = self._rows
        self._waiting[number] = row

        def done(code: ErrorCode) -> None:
            if not self.completed:
                row.error_code = code
                self._settled(number)

        return done

    def await_commit(self, leader: Partition, offset: int, done: Callable[[ErrorCode], None]) -> None:
        waiter = leader.await_commit(offset, done)
        if waiter is not None:
            self._waiters.append(waiter)

    def written(self, services: Services) -> None:
        """Begins to wait for the markers that are not committed yet."""
        self._settled(0)
        if not self.completed:
            deadline_ms = self._context.now_ms + services.config.int_of("request.timeout.ms")
            services.replicas.purgatory.expire_at(deadline_ms, self)

    def _settled(self, key: int) -> None:
        del self._waiting[key]
        if not self._waiting:
            self.complete()

    def on_complete(self, expired: bool) -> None:
        for waiter in self._waiters:
            waiter.cancel()
        for row in self._waiting.values():
            if row is not None:
                row.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._context.reply(WriteTxnMarkersResponse(markers=self._results))


def _write(services: Services, marker: Marker, partition: TopicPartition, delayed: DelayedMarkers, row: Row) -> None:
    done = delayed.slot(row)
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
        appended = services.replicas.append_to(leader, batch, -1, wall_ms, Origin.COORDINATOR)
        if appended.info is None:
            done(appended.error)
        else:
            delayed.await_commit(leader, appended.info.last_offset + 1, done)
