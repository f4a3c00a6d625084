"""AlterPartition as a leader would send it, for tests of the effects of an ISR change."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.controller_world import ControllerWorld

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests import partitions
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest


def isr_request(image: MetadataImage, isr: Sequence[int], topic: str = "t", index: int = 0) -> AlterPartitionRequest:
    """Returns the request of the current leader, with the current epochs of all brokers."""
    partition = image.topics_by_name[topic].partitions[index]
    row = AlterPartitionRequest.PartitionData(
        partition_index=index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=broker_id, broker_epoch=image.brokers[broker_id].epoch)
            for broker_id in isr
        ],
    )
    return AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=image.brokers[partition.leader].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=image.topics_by_name[topic].topic_id, partitions=[row])],
    )


def set_isr(world: ControllerWorld, isr: Sequence[int], topic: str = "t") -> None:
    response = world.apply(partitions.alter_partition(world.view(), isr_request(world.image, isr, topic), 3))
    assert response.topics[0].partitions[0].error_code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
