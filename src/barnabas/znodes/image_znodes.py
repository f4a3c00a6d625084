"""The znodes with the contents of an image, as Kafka's migration to KRaft writes them (KIP-866).

An image does not have everything that znodes contain: when a broker registered and its JMX port, which controller wrote
a state, which broker got the last block of producer ids, and in which order overrides were set. The caller gives the
first controller epoch; the others get defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.config_keys import show
from barnabas.metadata.image import BROKER_RESOURCE, METADATA_VERSION, TOPIC_RESOURCE, MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.security import QuotaEntity, SecurityImage
from barnabas.metadata.topics import PartitionImage, TopicImage
from barnabas.znodes import paths
from barnabas.znodes.acl_znodes import AclEntry, ResourcePattern, acl_path, encode_acls
from barnabas.znodes.broker_znodes import BrokerRegistration, encode_registration
from barnabas.znodes.client_entities import CLIENT, IP, USER
from barnabas.znodes.cluster_znodes import Features, ProducerIdBlock, encode_features, encode_producer_id_block
from barnabas.znodes.config_znodes import encode_config
from barnabas.znodes.entity_records import SCRAM_MECHANISMS, scram_text, token_of
from barnabas.znodes.token_znodes import encode_token
from barnabas.znodes.topic_znodes import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_state,
    encode_topic,
)

Content = tuple[str, bytes | None]

#: How many producer ids a block has.
PRODUCER_ID_BLOCK_SIZE: Final = 1000
#: Quotas that Kafka keeps as whole numbers; all others are written as Java writes a double.
_WHOLE_QUOTAS: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_MECHANISM_NAMES: Final = {number: name for name, number in SCRAM_MECHANISMS.items()}


def image_znodes(image: MetadataImage, controller_epoch: int) -> dict[str, bytes | None]:
    """Returns path -> content for everything in the image, with the parents below each root."""
    znodes: dict[str, bytes | None] = {}
    for path, data in _contents(image, controller_epoch):
        parts = path.split("/")
        for depth in range(2, len(parts)):
            znodes.setdefault("/".join(parts[:depth]), None)
        znodes[path] = data
    return znodes


def _contents(image: MetadataImage, controller_epoch: int) -> Iterator[Content]:
    for broker_id, broker in sorted(image.brokers.items()):
        yield paths.broker(broker_id), encode_registration(registration_of(broker))
    for topic in image.topics():
        yield from topic_znodes(topic, controller_epoch)
        overrides = image.topic_config(topic.name)
        yield paths.config(paths.TOPIC_CONFIGS, topic.name), encode_config(dict(sorted(overrides.items())))
    for (kind, name), overrides in sorted(image.configs.items()):
        if kind == BROKER_RESOURCE:
            path = paths.config(paths.BROKER_CONFIGS, name or paths.DEFAULT_ENTITY)
            yield path, encode_config(dict(sorted(overrides.items())))
        else:
            assert kind == TOPIC_RESOURCE or kind > BROKER_RESOURCE, f"resource type {kind}"
    yield from client_znodes(image.security)
    if image.next_producer_id > 0:
        yield paths.PRODUCER_ID_BLOCK, encode_producer_id_block(_last_block(image.next_producer_id))
    yield from acl_znodes(image.security)
    for token_id, token in sorted(image.security.tokens.items()):
        yield paths.token(token_id), encode_token(token_of(token))
    levels = {name: level for name, level in sorted(image.features.items()) if name != METADATA_VERSION}
    yield paths.FEATURE, encode_features(Features(2, True, levels))


def registration_of(broker: BrokerImage) -> BrokerRegistration:
    """Returns the content of /brokers/ids/N for a broker, without the time and the JMX port, which the image lacks."""
    return BrokerRegistration(broker.endpoints, broker.rack, features=broker.features)


def topic_znodes(topic: TopicImage, controller_epoch: int) -> Iterator[Content]:
    """Yields the znodes of a topic, its partitions and their states."""
    yield paths.topic(topic.name), encode_topic(assignment_of(topic))
    yield paths.partitions(topic.name), None
    for number, partition in enumerate(topic.partitions):
        yield paths.partition(topic.name, number), None
        yield paths.state(topic.name, number), encode_state(state_of(partition, controller_epoch))


def assignment_of(topic: TopicImage) -> TopicAssignment:
    """Returns the content of /brokers/topics/T for a topic."""
    return TopicAssignment(
        topic.topic_id,
        {
            number: ReplicaAssignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)
            for number, partition in enumerate(topic.partitions)
        },
    )


def state_of(partition: PartitionImage, controller_epoch: int) -> PartitionState:
    return PartitionState(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        controller_epoch,
        partition.leader_recovery_state,
    )


def _last_block(next_producer_id: int) -> ProducerIdBlock:
    """Returns a block that belongs to no broker and ends before the next producer id."""
    return ProducerIdBlock(-1, max(0, next_producer_id - PRODUCER_ID_BLOCK_SIZE), next_producer_id - 1)


def client_znodes(security: SecurityImage) -> Iterator[Content]:
    """Yields the configurations of users, clients and addresses: their quotas, and the credentials of users."""
    configs: dict[str, dict[str, str]] = {}
    for entity, quotas in security.quotas.items():
        path = quota_path(entity)
        if path is not None:
            configs[path] = {key: quota_text(key, value) for key, value in sorted(quotas.items())}
    for (mechanism, user), credential in sorted(security.scram.items()):
        path = paths.config(paths.USER_CONFIGS, paths.sanitize(user))
        configs.setdefault(path, {})[_MECHANISM_NAMES[mechanism]] = scram_text(credential)
    for path, overrides in sorted(configs.items()):
        yield path, encode_config(overrides)


def quota_path(entity: QuotaEntity) -> str | None:
    """Returns the path of an entity's quotas; None for a combination that ZooKeeper has no znode for."""
    names = {kind: paths.DEFAULT_ENTITY if name is None else paths.sanitize(name) for kind, name in entity}
    match sorted(names):
        case ["user"]:
            return paths.config(paths.USER_CONFIGS, names[USER])
        case ["client-id"]:
            return paths.config(paths.CLIENT_CONFIGS, names[CLIENT])
        case ["client-id", "user"]:
            return paths.config(paths.USER_CONFIGS, f"{names[USER]}/{paths.CLIENT_CONFIGS}/{names[CLIENT]}")
        case ["ip"]:
            return paths.config(paths.IP_CONFIGS, names[IP])
        case _:
            return None


def quota_text(key: str, value: float) -> str:
    """Returns the text of a quota in a znode."""
    return str(int(value + 1e-6)) if key in _WHOLE_QUOTAS else show(value) or ""


def acl_znodes(security: SecurityImage) -> Iterator[Content]:
    """Yields the ACLs of each resource. The entries of one resource are sorted, because the image has no order of
    them.
    """
    by_pattern: dict[ResourcePattern, list[AclEntry]] = {}
    for acl in security.acls.values():
        pattern = ResourcePattern(acl.resource_type, acl.resource_name, acl.pattern_type)
        entry = AclEntry(acl.principal, acl.permission, acl.operation, acl.host)
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in sorted(by_pattern.items()):
        yield acl_path(pattern), encode_acls(sorted(set(entries)))
