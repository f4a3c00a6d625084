"""The content of a metadata snapshot (KIP-630): an image as the records that build it from an empty image.

`RaftNode.write_snapshot` writes these records to a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.metadata.image import METADATA_VERSION, MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.security import SecurityImage
from barnabas.metadata.topics import PartitionImage, partition_to_record
from barnabas.metadata.versions import partition_version, register_broker_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages import records_metadata as r


def image_records(image: MetadataImage) -> Iterator[tuple[Message, int]]:
    """Yields the records with their versions, in Kafka's order of record types; sorted within a type."""
    yield from _feature_records(image)
    for _, broker in sorted(image.brokers.items()):
        yield _broker_record(broker, image.metadata_version)
    for _, controller in sorted(image.controllers.items()):
        yield controller.to_record(), 0
    for topic in image.topics():
        yield r.TopicRecord(name=topic.name, topic_id=topic.topic_id), 0
        for partition_id, partition in enumerate(topic.partitions):
            yield _partition_record(topic.topic_id, partition_id, partition, image.metadata_version)
    for (resource_type, resource_name), overrides in sorted(image.configs.items()):
        for key, value in sorted(overrides.items()):
            yield r.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value), 0
    yield from _quota_records(image.security)
    if image.next_producer_id >= 0:
        yield r.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id), 0
    for rule_id, rule in sorted(image.security.acls.items()):
        yield rule.record(rule_id), 0
    for _, credential in sorted(image.security.scram.items()):
        yield credential, 0
    for _, token in sorted(image.security.tokens.items()):
        yield token, 0
    if image.zk_migration_state:
        yield r.ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state), 0


def _feature_records(image: MetadataImage) -> Iterator[tuple[Message, int]]:
    """Yields `metadata.version` first, because the other records are read according to it."""
    if image.metadata_version:
        yield r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.metadata_version), 0
    for name, level in sorted(image.features.items()):
        if name != METADATA_VERSION:
            yield r.FeatureLevelRecord(name=name, feature_level=level), 0


def _broker_record(broker: BrokerImage, metadata_version: int) -> tuple[Message, int]:
    record = broker.to_record()
    version = register_broker_version(metadata_version)
    if version < 3:
        record.log_dirs = []
    if version < 2:
        record.is_migrating_zk_broker = False
    return record, version


def _partition_record(
    topic_id: bytes, partition_id: int, partition: PartitionImage, metadata_version: int
) -> tuple[Message, int]:
    record = partition_to_record(topic_id, partition_id, partition)
    version = partition_version(metadata_version)
    if version < 2:
        record.eligible_leader_replicas = record.last_known_elr = None
    if version < 1:
        record.directories = []
    return record, version


def _quota_records(security: SecurityImage) -> Iterator[tuple[Message, int]]:
    for entity, values in sorted(security.quotas.items(), key=lambda item: repr(item[0])):
        for key, value in sorted(values.items()):
            yield (
                r.ClientQuotaRecord(
                    entity=[
                        r.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                    ],
                    key=key,
                    value=value,
                    remove=False,
                ),
                0,
            )
