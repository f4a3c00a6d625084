"""DescribeProducers (61), version 0: the producer state of a replica on this broker, leader or follower (KIP-664)."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests import pieces
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import INDEXES, ErrorRows
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.topic_names import topic_name_problem
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

ERROR_ROWS: Final = (ErrorRows("topics", "topics", inner=INDEXES),)
PIECES: Final = pieces.topics(200, inner="partition_indexes")


Partition = DescribeProducersResponse.PartitionResponse

_UNKNOWN = "This server does not host this topic-partition."


def handle(context: RequestContext, request: DescribeProducersRequest, services: Services) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    refusal: tuple[ErrorCode, str] | None
    for topic in request.topics:
        if problem := topic_name_problem(topic.name):
            refusal = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        elif topic.name not in services.metadata.image.topics_by_name:
            refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN
        else:
            refusal = None
        rows = [_describe(services, topic.name, index, refusal) for index in topic.partition_indexes]
        response.topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=rows))
    return response


def _describe(services: Services, topic: str, index: int, refusal: tuple[ErrorCode, str] | None) -> Partition:
    if refusal is not None:
        return Partition(partition_index=index, error_code=refusal[0], error_message=refusal[1])
    try:
        producers = services.replicas.leader(topic, index, or_follower=True).log.producers
    except RequestFailed as failure:
        return Partition(partition_index=index, error_code=failure.code, error_message=failure.message)
    return Partition(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1 if producer.txn_first_offset is None else producer.txn_first_offset,
            )
            for producer in producers.producers.values()
        ],
    )
