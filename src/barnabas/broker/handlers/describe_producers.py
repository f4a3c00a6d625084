"""DescribeProducers (61), version 0: the producer state of a replica on this broker, leader or follower (KIP-664)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import INDEXES, ErrorRows
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.topic_names import topic_name_problem
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

ERROR_ROWS: Final = (ErrorRows("topics", "topics", inner=INDEXES),)
#: The numbers of partitions and of producers that are described in about a quarter of a millisecond.
_PARTITIONS_PER_STEP: Final = 50
_PRODUCERS_PER_STEP: Final = 200


Partition = DescribeProducersResponse.PartitionResponse

_UNKNOWN = "This server does not host this topic-partition."


def handle(context: RequestContext, request: DescribeProducersRequest, services: Services) -> Work:
    response = DescribeProducersResponse()
    described = 0
    refusal: tuple[ErrorCode, str] | None
    for topic in request.topics:
        if problem := topic_name_problem(topic.name):
            refusal = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        elif topic.name not in services.metadata.image.topics_by_name:
            refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN
        else:
            refusal = None
        rows: list[Partition] = []
        response.topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=rows))
        # A partition is described once: it can have a hundred thousand producers, and a request names it as often.
        for index in dict.fromkeys(topic.partition_indexes):
            row = yield from _describe(services, topic.name, index, refusal)
            rows.append(row)
            described += 1
            if described % _PARTITIONS_PER_STEP == 0:
                yield 1
    return response


def _describe(
    services: Services, topic: str, index: int, refusal: tuple[ErrorCode, str] | None
) -> Generator[int, None, Partition]:
    if refusal is not None:
        return Partition(partition_index=index, error_code=refusal[0], error_message=refusal[1])
    try:
        producers = services.replicas.leader(topic, index, or_follower=True).log.producers
    except RequestFailed as failure:
        return Partition(partition_index=index, error_code=failure.code, error_message=failure.message)
    active: list[DescribeProducersResponse.ProducerState] = []
    for place, producer in enumerate(tuple(producers.producers.values()), 1):
        active.append(
            DescribeProducersResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1 if producer.txn_first_offset is None else producer.txn_first_offset,
            )
        )
        if place % _PRODUCERS_PER_STEP == 0:
            yield 1
    return Partition(partition_index=index, active_producers=active)
