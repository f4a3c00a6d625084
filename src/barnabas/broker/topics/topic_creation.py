"""Topics created on demand: auto creation by Metadata requests, and the internal topics.

The client gets "unknown topic" the first time and finds the topic when it retries, as with Kafka: the creation is a
separate event, which can also fail. While a creation is in flight, it is not requested again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.broker.requests.context import Services
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.topic_names import topic_name_problem
from barnabas.common.types import EVENTS_TOPIC, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

SHARE_GROUP_STATE_TOPIC = "__share_group_state"
#: The timeout of the request to the controller; clients that want the topic retry anyway.
_CREATION_TIMEOUT_MS: Final = 5_000
_EVENTS_REPLICAS_MAX: Final = 3


def auto_create(services: Services, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Requests the creation of these topics with the broker's defaults. Returns the error code for each for the current
    response."""
    answers: dict[str, ErrorCode] = {}
    wanted: list[str] = []
    for name in names:
        if topic_name_problem(name) is not None:
            answers[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            continue
        answers[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted.append(name)
    if wanted:
        _create(services, wanted)
    return answers


def ensure_internal_topic(services: Services, name: str) -> None:
    """Requests the creation of `__consumer_offsets`, `__cluster_events` or another internal topic if it does not
    exist."""
    if name not in services.metadata.image.topics_by_name:
        _create(services, [name])


def _create(services: Services, names: list[str]) -> None:
    pending = services.topics_in_creation
    requested = [name for name in names if name not in pending]
    if not requested:
        return
    pending.update(requested)

    def created(response: Message | None) -> None:
        pending.difference_update(requested)
        results = response.topics if isinstance(response, CreateTopicsResponse) else ()
        for result in results:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER):
                code = ErrorCode(result.error_code)
                services.host.faults.report(f"topic {result.name} was not created: {code.name} {result.error_message}")

    request = CreateTopicsRequest(topics=[_new_topic(services, name) for name in requested])
    services.access.send(request, created, timeout_ms=_CREATION_TIMEOUT_MS)


def _new_topic(services: Services, name: str) -> CreateTopicsRequest.CreatableTopic:
    config = services.config
    if name == EVENTS_TOPIC:
        return _events_topic(config, len(services.metadata.image.brokers))
    if name == GROUP_METADATA_TOPIC:
        return _topic(
            name,
            config.int_of("offsets.topic.num.partitions"),
            config.int_of("offsets.topic.replication.factor"),
            {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": config.int_of("offsets.topic.segment.bytes"),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return _topic(
            name,
            config.int_of("transaction.state.log.num.partitions"),
            config.int_of("transaction.state.log.replication.factor"),
            {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": config.int_of("transaction.state.log.min.isr"),
                "segment.bytes": config.int_of("transaction.state.log.segment.bytes"),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        return _topic(
            name,
            config.int_of("share.coordinator.state.topic.num.partitions"),
            config.int_of("share.coordinator.state.topic.replication.factor"),
            {
                "compression.type": "producer",
                "cleanup.policy": "delete",
                "min.insync.replicas": config.int_of("share.coordinator.state.topic.min.isr"),
                "segment.bytes": config.int_of("share.coordinator.state.topic.segment.bytes"),
                "retention.ms": -1,
            },
        )
    return _topic(name, config.int_of("num.partitions"), config.int_of("default.replication.factor"), {})


def _events_topic(config: BrokerConfig, broker_count: int) -> CreateTopicsRequest.CreatableTopic:
    """Returns the events topic: one partition, so that its readers see all changes in order. One replica in the ISR
    suffices for writes: when the journal matters most, there can be only one."""
    return _topic(
        EVENTS_TOPIC,
        1,
        max(1, min(_EVENTS_REPLICAS_MAX, broker_count)),
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": 1,
            "retention.ms": config.int_of("barnabas.cluster.events.retention.ms"),
            "segment.bytes": 16 << 20,
            "unclean.leader.election.enable": "false",
        },
    )


def _topic(
    name: str, partition_count: int, replication_factor: int, configs: Mapping[str, object]
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=str(value)) for key, value in configs.items()
        ],
    )
