"""DeleteRecords (21), versions 0-2: advances the log start offset of partitions (KIP-107).

Offset -1 means the HW. Internal topics and topics without delete in `cleanup.policy` are refused. The response is sent
when no live replica has the records any more: followers adopt the leader's log start offset and report it in their next
fetch. The new log start offset is in the log-start checkpoint of the log directory (`storage/upkeep.py`).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests import pieces
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import TOPICS
from barnabas.common import continuations
from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.replication.partition import Partition, Role
from barnabas.replication.purgatory import DelayedOperation

ERROR_ROWS: Final = (TOPICS,)
PIECES: Final = pieces.topics(200)


_Row = DeleteRecordsResponse.DeleteRecordsPartitionResult

_UNKNOWN_LOW_WATERMARK: Final = -1


def handle(context: RequestContext, request: DeleteRecordsRequest, services: Services) -> DeleteRecordsResponse | None:
    response = DeleteRecordsResponse()
    waiting: list[_PendingDeletion] = []
    for topic in request.topics:
        rows = []
        for requested in topic.partitions:
            row = _Row(partition_index=requested.partition_index, low_watermark=_UNKNOWN_LOW_WATERMARK)
            rows.append(row)
            deletion = _delete(services, topic.name, requested.offset, row)
            if deletion is not None:
                waiting.append(deletion)
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    if not waiting:
        return response
    delayed = DelayedDeleteRecords(context, response, waiting)
    services.replicas.purgatory.expire_at(context.now_ms + max(0, request.timeout_ms), delayed)
    context.when_disconnected(delayed.cancel)
    return None


def _delete(services: Services, topic: str, offset: int, row: _Row) -> _PendingDeletion | None:
    """Deletes the records of one partition: fills in its row of the response, or returns the pending deletion that it
    waits for.
    """
    replicas = services.replicas
    try:
        if topic in INTERNAL_TOPICS and replicas.find(topic, row.partition_index) is not None:
            raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = replicas.leader(topic, row.partition_index)
        target = partition.delete_records_before(offset)
        row.low_watermark = partition.low_watermark
        if row.low_watermark < target:
            return _PendingDeletion(partition, target, row)
    except RequestFailed as failure:
        row.error_code = failure.code
    except StorageFault as fault:
        replicas.on_storage_fault(fault)
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return None


class _PendingDeletion:
    """A partition whose followers have not deleted yet. `on_progress` is called when that may have changed."""

    __slots__ = ("_owner", "_target", "delayed", "partition", "row")

    def __init__(self, partition: Partition, target: int, row: _Row) -> None:
        self.partition = partition
        self._target = target
        self.row = row
        self.delayed: DelayedDeleteRecords | None = None
        self._owner = continuations.owner()

    def on_progress(self, size_bytes: int) -> None:
        continuations.run(self._owner, self._check)

    def _check(self) -> None:
        partition, row = self.partition, self.row
        if partition.role is not Role.LEADER:
            is_offline = partition.role is Role.OFFLINE
            row.error_code = ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
            row.low_watermark = _UNKNOWN_LOW_WATERMARK
        else:
            low_watermark = partition.low_watermark
            if low_watermark < self._target:
                return
            row.low_watermark = low_watermark
        partition.start_watchers.pop(self, None)
        assert self.delayed is not None, "set by DelayedDeleteRecords"
        self.delayed.settled(self)


class DelayedDeleteRecords(DelayedOperation):
    """A delayed DeleteRecords. Partitions that are not done at the deadline get REQUEST_TIMED_OUT, although the leader
    has deleted their records."""

    __slots__ = ("_context", "_response", "_waiting")

    def __init__(
        self, context: RequestContext, response: DeleteRecordsResponse, waiting: list[_PendingDeletion]
    ) -> None:
        super().__init__()
        self._context = context
        self._response = response
        self._waiting = dict.fromkeys(waiting)
        for deletion in waiting:
            deletion.delayed = self
            deletion.partition.start_watchers[deletion] = None

    def settled(self, deletion: _PendingDeletion) -> None:
        self._waiting.pop(deletion, None)
        if not self._waiting:
            self.complete()

    def on_complete(self, expired: bool) -> None:
        for deletion in self._waiting:
            deletion.row.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.on_cancel()
        self._context.reply(self._response)

    def on_cancel(self) -> None:
        for deletion in self._waiting:
            deletion.partition.start_watchers.pop(deletion, None)
