"""Metadata (3), versions 0-13: brokers, topics and leaders, as clients of the requested listener see them.

Topics are requested by name, by id (KIP-516, from version 12), or all. If both client and broker allow auto creation,
the creation of a missing topic is requested, and this response has UNKNOWN_TOPIC_OR_PARTITION for it. The controller in
the response is the broker to which clients send admin requests: any, in KRaft mode (KIP-631). Version 0 leaves out
unreachable replicas and sets an error for the partition. Topics that the client may not describe are refused or left
out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.broker.requests.steps import Work
from barnabas.broker.topics.topic_creation import auto_create
from barnabas.broker.topics.topic_views import (
    cluster_operations,
    endpoint_of,
    leader_of,
    offline_replicas,
    reachable,
    topic_operations,
    visible_topics,
)
from barnabas.common.errors import ErrorCode
from barnabas.common.topic_names import topic_name_problem
from barnabas.common.types import INTERNAL_TOPICS, ZERO_UUID
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import NO_LEADER, PartitionImage, TopicImage
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

ERROR_ROWS: Final = (ErrorRows("topics", "topics"),)
PIECES: Final = Pieces(200, "topics", "topics", key="name", answers_once=True)


_TOPIC_IDS_SINCE = 12
_LISTENER_ERROR_SINCE = 6


#: The number of partitions described per step.
_ROWS_PER_STEP = 50


def handle(context: RequestContext, request: MetadataRequest, services: Services) -> Work:
    version = context.api_version
    if version < _TOPIC_IDS_SINCE and _names_ids(request):
        return MetadataResponse(
            controller_id=NO_LEADER,
            topics=[
                _error(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in request.topics or ()
            ],
        )
    image = services.metadata.image
    brokers = _brokers(image.alive_brokers(), context.listener)
    recently_fenced = _brokers(services.recently_fenced.listed(), context.listener)
    topics = yield from _topics(context, request, services, image)
    response = MetadataResponse(
        brokers=brokers + recently_fenced,
        cluster_id=services.cluster_id,
        controller_id=services.side.shown_controller([broker.node_id for broker in brokers]),
        topics=topics,
    )
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = topic_operations(context, services, topic.name)
    if request.include_cluster_authorized_operations and version <= 10:
        response.cluster_authorized_operations = cluster_operations(context, services)
    return response


def _names_ids(request: MetadataRequest) -> bool:
    return any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ())


def _brokers(found: Sequence[BrokerImage], listener: str) -> list[MetadataResponse.MetadataResponseBroker]:
    brokers = []
    for broker in found:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponse.MetadataResponseBroker(
                    node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return brokers


def _topics(
    context: RequestContext, request: MetadataRequest, services: Services, image: MetadataImage
) -> Generator[int, None, list[MetadataResponse.MetadataResponseTopic]]:
    version = context.api_version
    requested = request.topics
    if requested is None or (version == 0 and not requested):
        visible = yield from visible_topics(context, services, image.topics())
        everything = yield from _described(image, visible, context)
        return everything
    ids = list(dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID))
    if ids:
        found = [(topic_id, image.topics_by_id.get(topic_id)) for topic_id in ids]
        unknown = [_error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id, topic in found if topic is None]
        known = [topic for _, topic in found if topic is not None]
        visible = yield from visible_topics(context, services, known, log_denied=True)
        shown_ids = {topic.topic_id for topic in visible}
        denied = [
            _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic.topic_id)
            for topic in known
            if topic.topic_id not in shown_ids
        ]
        present = yield from _described(image, visible, context)
        return unknown + present + denied
    names = list(dict.fromkeys(topic.name for topic in requested if topic.name is not None))
    hidden: list[MetadataResponse.MetadataResponseTopic] = []
    if services.authorizer is not None:
        names, hidden = _judged(context, request, services, names)
    known = [topic for name in names if (topic := image.topics_by_name.get(name))]
    present = yield from _described(image, known, context)
    missing = [name for name in names if name not in image.topics_by_name]
    create = request.allow_auto_topic_creation and services.config.bool_of("auto.create.topics.enable")
    answers = auto_create(services, missing) if create else _unknown(missing)
    return present + [_error(code, name, ZERO_UUID) for name, code in answers.items()] + hidden


def _judged(
    context: RequestContext, request: MetadataRequest, services: Services, names: list[str]
) -> tuple[list[str], list[MetadataResponse.MetadataResponseTopic]]:
    """Returns the names of topics that the client may describe, or may create if they are missing, and the rows of the
    refused ones. The row of a refused topic does not reveal whether it exists.
    """
    authorizer = services.authorizer
    assert authorizer is not None, "there is an authorizer"
    describable = authorizer.allowed_names(context, AclOperation.DESCRIBE, AclResource.TOPIC, names)
    creatable = missing = {name for name in describable if name not in services.metadata.image.topics_by_name}
    creates = request.allow_auto_topic_creation and services.config.bool_of("auto.create.topics.enable")
    if (
        missing
        and creates
        and not authorizer.allows(context, AclOperation.CREATE, AclResource.CLUSTER, log_denied=False)
    ):
        creatable = authorizer.allowed_names(context, AclOperation.CREATE, AclResource.TOPIC, sorted(missing))
    refused = missing - creatable
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [_error(code, name, ZERO_UUID) for name in names if name in refused]
    for name in names:
        if name not in describable:
            rows.append(MetadataResponse.MetadataResponseTopic(error_code=code, name=name))
    return [name for name in names if name in describable and name not in refused], rows


def _unknown(names: Iterable[str]) -> dict[str, ErrorCode]:
    return {
        name: (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic_name_problem(name) is None
            else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        for name in names
    }


def _error(code: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _described(
    image: MetadataImage, topics: Iterable[TopicImage], context: RequestContext
) -> Generator[int, None, list[MetadataResponse.MetadataResponseTopic]]:
    describe = _partition_reachable_only if context.api_version == 0 else _partition
    found = []
    left = _ROWS_PER_STEP
    for topic in topics:
        rows: list[MetadataResponse.MetadataResponsePartition] = []
        found.append(
            MetadataResponse.MetadataResponseTopic(
                error_code=ErrorCode.NONE,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS,
                partitions=rows,
            )
        )
        left -= 1
        for index, partition in enumerate(topic.partitions):
            if partition.is_known:
                rows.append(describe(image, index, partition, context))
            left -= 1
            if left <= 0:
                left = _ROWS_PER_STEP
                yield 1
    return found


def _partition(
    image: MetadataImage, index: int, partition: PartitionImage, context: RequestContext
) -> MetadataResponse.MetadataResponsePartition:
    leader, code = leader_of(image, partition, context.listener)
    if code is ErrorCode.LISTENER_NOT_FOUND and context.api_version < _LISTENER_ERROR_SINCE:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponse.MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline_replicas(image, partition, context.listener),
    )


def _partition_reachable_only(
    image: MetadataImage, index: int, partition: PartitionImage, context: RequestContext
) -> MetadataResponse.MetadataResponsePartition:
    replicas = reachable(image, partition.replicas, context.listener)
    isr = reachable(image, partition.isr, context.listener)
    if endpoint_of(image, partition.leader, context.listener) is None:
        leader, code = NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        leader, code = partition.leader, ErrorCode.REPLICA_NOT_AVAILABLE
    else:
        leader, code = partition.leader, ErrorCode.NONE
    return MetadataResponse.MetadataResponsePartition(
        error_code=code, partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr
    )
