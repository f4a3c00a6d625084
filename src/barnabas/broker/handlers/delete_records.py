"""DeleteRecords (21), versions 0-2: move the log start offset of partitions (KIP-107).

Offset -1 means the HW. Not for internal topics, nor where `cleanup.policy` has no delete.
"""

from __future__ import annotations

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse


def handle(context: RequestContext, request: DeleteRecordsRequest, services: Services) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        rows = [
            _delete(services, topic.name, partition.partition_index, partition.offset) for partition in topic.partitions
        ]
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    return response


def _delete(
    services: Services, topic: str, index: int, offset: int
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    row = DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS and services.replicas.find(topic, index) is not None:
            raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION)
        row.low_watermark = services.replicas.leader(topic, index).delete_records_before(offset)
    except RequestFailed as failure:
        row.error_code = failure.code
    except StorageFault as fault:
        services.replicas.on_storage_fault(fault)
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return row
