"""ListOffsets (2), versions 1-10: offsets by time, and the special times below.

-1 latest (HW, or LSO when read_committed), -2 earliest (log start), -3 the record with the largest timestamp (KIP-734),
-4 earliest local (KIP-405; here the log start), -5 latest in remote storage (there is none). A record at or above what
the reader may see is not found. Fencing by leader epoch from version 4 (KIP-320).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.replication.partition import Isolation, Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

_VERSION_OF = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


_NOTHING = Found(-1, -1, -1)


def handle(context: RequestContext, request: ListOffsetsRequest, services: Services) -> ListOffsetsResponse:
    asked = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    duplicates = {place for place, count in Counter(asked).items() if count > 1}
    if request.replica_id != -1:
        isolation = Isolation.LOG_END
    else:
        isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    response = ListOffsetsResponse()
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            row = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=partition.partition_index, timestamp=-1, offset=-1, leader_epoch=-1
            )
            try:
                if (topic.name, partition.partition_index) in duplicates:
                    raise RequestFailed(ErrorCode.INVALID_REQUEST)
                found = _find(services, topic.name, partition, isolation, context.api_version)
                row.timestamp, row.offset = found.timestamp, found.offset
                if context.api_version >= 4:
                    row.leader_epoch = found.leader_epoch
            except RequestFailed as failure:
                row.error_code = failure.code
            except StorageFault as fault:
                services.replicas.on_directory_failed(fault.directory, fault)
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            rows.append(row)
        response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return response


def _find(
    services: Services, topic: str, asked: ListOffsetsRequest.ListOffsetsPartition, isolation: Isolation, version: int
) -> Found:
    if asked.timestamp < 0 and version < _VERSION_OF.get(asked.timestamp, 1 << 15):
        raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION)
    partition = services.replicas.leader(topic, asked.partition_index)
    code = partition.check_epoch(asked.current_leader_epoch)
    if code is not ErrorCode.NONE:
        raise RequestFailed(code)
    return find_offset(partition, asked.timestamp, isolation)


def find_offset(partition: Partition, timestamp: int, isolation: Isolation) -> Found:
    """What a reader of that isolation is told for `timestamp` (milliseconds, or one of the special times)."""
    log = partition.log
    end = partition.readable_end(isolation)
    if timestamp == LATEST:
        return Found(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(-1, log.log_start_offset, log.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return _NOTHING
    hit = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if hit is None or hit[1] >= end:
        return _NOTHING
    return Found(*hit)
