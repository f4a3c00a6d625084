"""DescribeProducers (61), version 0: the producers that a partition's leader knows (KIP-664)."""

from __future__ import annotations

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import RequestFailed
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

Partition = DescribeProducersResponse.PartitionResponse


def handle(context: RequestContext, request: DescribeProducersRequest, services: Services) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        rows = [_describe(services, topic.name, index) for index in topic.partition_indexes]
        response.topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=rows))
    return response


def _describe(services: Services, topic: str, index: int) -> Partition:
    try:
        producers = services.replicas.leader(topic, index).log.producers
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
