"""Brokers and partitions as clients of one listener see them, for Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.registrations import BrokerImage, Endpoint
from barnabas.metadata.topics import NO_LEADER, PartitionImage, TopicImage

#: All ACL operations on a topic and on the cluster, as bit sets: without an authorizer, all are allowed.
TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
_TOPICS_PER_STEP: Final = 100
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def topic_operations(context: RequestContext, services: Services, topic: str) -> int:
    """Returns the operations that the client may perform on a topic, as bits (KIP-430)."""
    if services.authorizer is None:
        return TOPIC_OPERATIONS
    return services.authorizer.operations(context, AclResource.TOPIC, topic)


def cluster_operations(context: RequestContext, services: Services) -> int:
    """Returns the operations that the client may perform on the cluster, as bits; none if the client may not describe
    the cluster.
    """
    authorizer = services.authorizer
    if authorizer is None:
        return CLUSTER_OPERATIONS
    if not authorizer.allows(context, AclOperation.DESCRIBE, AclResource.CLUSTER):
        return 0
    return authorizer.operations(context, AclResource.CLUSTER)


def visible_topics(
    context: RequestContext, services: Services, topics: Iterable[TopicImage], *, log_denied: bool = False
) -> Generator[int, None, list[TopicImage]]:
    """Returns the topics that the client may describe, as work in steps."""
    authorizer = services.authorizer
    if authorizer is None:
        return list(topics)
    found = []
    for place, topic in enumerate(topics):
        if place % _TOPICS_PER_STEP == _TOPICS_PER_STEP - 1:
            yield 1
        if authorizer.allows(context, AclOperation.DESCRIBE, AclResource.TOPIC, topic.name, log_denied=log_denied):
            found.append(topic)
    return found


def endpoint_of(image: MetadataImage, broker_id: int, listener: str) -> Endpoint | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.endpoint(listener)


def leader_of(image: MetadataImage, partition: PartitionImage, listener: str) -> tuple[int, ErrorCode]:
    """Returns the leader if clients of this listener can reach it, otherwise -1 and the error."""
    if endpoint_of(image, partition.leader, listener) is not None:
        return partition.leader, ErrorCode.NONE
    missing = partition.leader not in image.brokers
    return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE if missing else ErrorCode.LISTENER_NOT_FOUND


def offline_replicas(image: MetadataImage, partition: PartitionImage, listener: str) -> list[int]:
    """Returns the replicas on brokers that are unregistered, fenced or without this listener, or in a failed
    directory."""
    return [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if not _serves(image.brokers.get(replica), directory, listener)
    ]


def _serves(broker: BrokerImage | None, directory: bytes, listener: str) -> bool:
    if broker is None or broker.fenced or broker.endpoint(listener) is None:
        return False
    return broker.has_online_directory(directory)


def reachable(image: MetadataImage, replicas: tuple[int, ...], listener: str) -> list[int]:
    """Returns the replicas on unfenced brokers that have this listener. Metadata version 0 shows only these."""
    brokers = image.brokers
    return [
        replica
        for replica in replicas
        if (broker := brokers.get(replica)) is not None and not broker.fenced and broker.endpoint(listener) is not None
    ]
