"""ListOffsets (2), versions 1-10: offsets by timestamp, and for special timestamps.

-1 latest (HW, or LSO if read_committed), -2 earliest (log start offset), -3 the record with the largest timestamp
(KIP-734), -4 earliest local (KIP-405; here the log start offset), -5 latest in remote storage (there is none). A record
at or above the offset that the reader can read up to is not found. Until the HW of a new leader has reached the start
of its epoch, a client gets an error instead of the end offset or of "not found" (KIP-207), because an earlier leader
can have reported more. Fencing by leader epoch from version 4 (KIP-320). Replica id -2 requests this replica's own
offsets, whatever its role. Look-ups that have to read files run in the background.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.broker.requests import pieces
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import TOPICS
from barnabas.broker.requests.late_responses import late_refusal
from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.protocol.message import Message
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.replication.partition import Isolation, Partition
from barnabas.storage.batch_file import NotCachedError
from barnabas.storage.time_search import TimeSearch

ERROR_ROWS: Final = (TOPICS,)
PIECES: Final = pieces.topics(200)


LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

#: The replica id of debugging clients, which can query any replica.
_DEBUGGER = -2

_VERSION_OF = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


class Found(NamedTuple):
    """The result of an offset look-up: a record's timestamp, offset and leader epoch; all -1 if there is no such
    record.
    """

    timestamp: int
    offset: int
    leader_epoch: int


#: The number of times a log is searched if it is truncated or compacted meanwhile.
_ATTEMPTS_MAX = 5
#: The version from which clients know OFFSET_NOT_AVAILABLE; older versions get LEADER_NOT_AVAILABLE.
_NOT_AVAILABLE_SINCE = 5
_NOTHING = Found(-1, -1, -1)


def handle(context: RequestContext, request: ListOffsetsRequest, services: Services) -> ListOffsetsResponse | None:
    requested = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    duplicates = {place for place, count in Counter(requested).items() if count > 1}
    if request.replica_id != -1:
        isolation = Isolation.LOG_END
    else:
        isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    response = ListOffsetsResponse()
    lookups = _Lookups(context, services, isolation, response, request.replica_id)
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            row = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=partition.partition_index, timestamp=-1, offset=-1, leader_epoch=-1
            )
            rows.append(row)
            if (topic.name, partition.partition_index) in duplicates:
                row.error_code = ErrorCode.INVALID_REQUEST
            else:
                lookups.begin(topic.name, partition, row)
        response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return lookups.answer()


class _Pending(NamedTuple):
    """A partition of the ListOffsets response whose look-up waits for the disk."""

    topic: str
    requested: ListOffsetsRequest.ListOffsetsPartition
    row: ListOffsetsResponse.ListOffsetsPartitionResponse
    search: TimeSearch
    attempts: int
    #: Returns the refusal if the client has lost the right to this row during the search.
    refusal: Callable[[], Message | None]


class _Lookups:
    """The rows of one response. Those by timestamp are searched in the background, one after the other; when a search
    ends, its row is looked up again from the start, because leadership and log may have changed."""

    def __init__(
        self,
        context: RequestContext,
        services: Services,
        isolation: Isolation,
        response: ListOffsetsResponse,
        replica_id: int,
    ) -> None:
        self._replica_id = replica_id
        self._context = context
        self._services = services
        self._isolation = isolation
        self._response = response
        self._pending: deque[_Pending] = deque()

    def begin(
        self,
        topic: str,
        requested: ListOffsetsRequest.ListOffsetsPartition,
        row: ListOffsetsResponse.ListOffsetsPartitionResponse,
        after: _Pending | None = None,
    ) -> None:
        """Fills in the row, or queues the search that it needs; `after` is the search that has just ended for it."""
        version = self._context.api_version
        try:
            partition = _requested_partition(
                self._services, topic, requested, version, any_replica=self._replica_id == _DEBUGGER
            )
            found = _find(partition, requested.timestamp, self._isolation, after)
        except RequestFailed as failure:
            row.error_code = failure.code
            if failure.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_SINCE:
                row.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        except RecordsRejected:
            # The log is damaged at the position of the search.
            row.error_code = ErrorCode.CORRUPT_MESSAGE
        except StorageFault as fault:
            self._services.replicas.on_storage_fault(fault)
            row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            if isinstance(found, TimeSearch):
                attempts = 1 if after is None else after.attempts + 1
                asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[requested])
                alone = ListOffsetsRequest(replica_id=self._replica_id, topics=[asked])
                refusal = late_refusal(self._context, alone, "list_offsets", self._services)
                self._pending.append(_Pending(topic, requested, row, found, attempts, refusal))
                return
            row.timestamp, row.offset = found.timestamp, found.offset
            if version >= 4:
                row.leader_epoch = found.leader_epoch

    def answer(self) -> ListOffsetsResponse | None:
        """Returns the response if no search is left, otherwise starts the next one."""
        if not self._pending:
            return self._response
        self._services.replicas.cold_reads.load(self._pending[0].search, self._on_searched)
        return None

    def _on_searched(self, error: BaseException | None) -> None:
        if error is not None:
            raise error
        pending = self._pending.popleft()
        if pending.refusal() is None:
            self.begin(pending.topic, pending.requested, pending.row, pending)
        else:
            pending.row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response = self.answer()
        if response is not None:
            self._context.reply(response)


def _requested_partition(
    services: Services,
    topic: str,
    requested: ListOffsetsRequest.ListOffsetsPartition,
    version: int,
    *,
    any_replica: bool,
) -> Partition:
    if requested.timestamp < 0 and version < _VERSION_OF.get(requested.timestamp, 1 << 15):
        raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION)
    partition = services.replicas.leader(topic, requested.partition_index, or_follower=any_replica)
    code = partition.check_epoch(requested.current_leader_epoch)
    if code is not ErrorCode.NONE:
        raise RequestFailed(code)
    return partition


def _find(partition: Partition, timestamp: int, isolation: Isolation, after: _Pending | None) -> Found | TimeSearch:
    """Looks up the offset for `timestamp` (milliseconds, or a special timestamp) as readers of that isolation level see
    it. Returns the result, or the search in the log that finds it.
    """
    log = partition.log
    end = partition.readable_end(isolation)
    if timestamp == LATEST:
        _require_known_end(partition, isolation)
        return Found(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(-1, log.log_start_offset, log.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return _NOTHING
    if after is not None:
        try:
            hit = log.found(after.search)
        except NotCachedError:
            if after.attempts == _ATTEMPTS_MAX:
                raise RequestFailed(ErrorCode.OFFSET_NOT_AVAILABLE) from None
        else:
            return _nothing(partition, isolation) if hit is None or hit[1] >= end else Found(*hit)
    search = log.search_time(None if timestamp == MAX_TIMESTAMP else timestamp)
    return _nothing(partition, isolation) if search.is_plain() else search


def _nothing(partition: Partition, isolation: Isolation) -> Found:
    _require_known_end(partition, isolation)
    return _NOTHING


def _require_known_end(partition: Partition, isolation: Isolation) -> None:
    if isolation is not Isolation.LOG_END and not partition.is_end_known:
        raise RequestFailed(ErrorCode.OFFSET_NOT_AVAILABLE)
