"""The metadata with which a stopped cluster in ZooKeeper mode continues in KRaft mode.

    tree -> records -> image, all brokers stopped -> the records that a new KRaft cluster begins with

The result depends on the tree alone: every node of the cluster computes the same by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.common.config_keys import BROKER_KEYS, READ_ONLY
from barnabas.metadata.features import default_features
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION, EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import ConfigRecord, FeatureLevelRecord, PartitionRecord
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import decode_cluster_id, decode_controller, decode_migration
from barnabas.znodes.tree_records import tree_records
from barnabas.znodes.znode_json import ZnodeError
from barnabas.znodes.znode_tree import ZnodeTree

#: Configurations that brokers keep in ZooKeeper encrypted with `password.encoder.secret`.
_PASSWORDS: Final = tuple(
    key.name for key in BROKER_KEYS.values() if key.is_sensitive and key.update_mode not in (None, READ_ONLY)
)


class KRaftMigration(NamedTuple):
    """The content of a new KRaft cluster, and the problems that prevent the migration."""

    cluster_id: str
    image: MetadataImage
    #: The records of `image` with their versions, for `bootstrap.checkpoint`.
    records: list[tuple[Message, int]]
    #: The findings that must be corrected first, because the migration would lose them.
    problems: list[ZnodeError]
    #: Topics that wait for their deletion: they are not migrated.
    deleted_topics: list[str]


def kraft_migration(tree: ZnodeTree, metadata_version: int) -> KRaftMigration:
    """Returns the migration of a tree to a cluster at this `metadata.version`.

    The features are those of a new cluster, except eligible leader replicas, which an operator turns on after an
    upgrade. Raises ZnodeError for a tree without a cluster id.
    """
    cluster_id = decode_cluster_id(paths.CLUSTER_ID, tree.data(paths.CLUSTER_ID))
    read = tree_records(tree, _derived_ids(cluster_id))
    delta = MetadataDelta(EMPTY_IMAGE)
    for name, level in default_features(metadata_version):
        if name != ELR_VERSION:
            delta.replay(FeatureLevelRecord(name=name, feature_level=level))
    problems = [*_migration_problems(tree), *read.problems]
    for record in read.records:
        if isinstance(record, PartitionRecord):
            _without_leader(record)
        if isinstance(record, ConfigRecord) and record.resource_type == BROKER_RESOURCE:
            problems += _encrypted(record)
        delta.replay(record)
    image = delta.apply(len(read.records), 0, 0)
    return KRaftMigration(cluster_id, image, list(image_records(image)), problems, read.deleted_topics)


def running_brokers(tree: ZnodeTree) -> list[str]:
    """Returns the ids of the brokers that are registered."""
    return tree.children(paths.BROKER_IDS)


def _derived_ids(cluster_id: str) -> Callable[[], bytes]:
    """Returns a source of ids that are practically unique, and the same in each migration of this cluster."""
    numbers = _counted()
    return lambda: hashlib.sha256(f"{cluster_id} {next(numbers)}".encode()).digest()[:16]


def _counted() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _without_leader(record: PartitionRecord) -> None:
    """Removes the leader, as the controller does when the last broker of an ISR is fenced: the first member of the ISR
    that comes back is elected.
    """
    record.leader = NO_LEADER
    record.leader_epoch += 1
    record.partition_epoch += 1


def _migration_problems(tree: ZnodeTree) -> Iterator[ZnodeError]:
    """Yields the traces of a migration by Kafka's own controllers, which must be finished or reverted there."""
    try:
        if tree.data(paths.CONTROLLER):
            registration = decode_controller(paths.CONTROLLER, tree.data(paths.CONTROLLER))
            if registration.kraft_controller_epoch > 0:
                yield ZnodeError(
                    paths.CONTROLLER,
                    f"belongs to KRaft controller {registration.broker_id}, which migrates this cluster already: "
                    "finish or revert that migration",
                )
        if tree.data(paths.MIGRATION):
            state = decode_migration(paths.MIGRATION, tree.data(paths.MIGRATION))
            if state.kraft_metadata_offset >= 0:
                yield ZnodeError(
                    paths.MIGRATION,
                    "shows a migration by Kafka's KRaft controllers, whose metadata log is newer: finish it there, or "
                    "revert it and remove this znode",
                )
    except ZnodeError as error:
        yield error


def _encrypted(record: ConfigRecord) -> Iterator[ZnodeError]:
    if record.name.endswith(_PASSWORDS):
        yield ZnodeError(
            paths.config(paths.BROKER_CONFIGS, record.resource_name or paths.DEFAULT_ENTITY),
            f"config.{record.name} is encrypted with password.encoder.secret: move it to the server.properties of the "
            "brokers and delete it from ZooKeeper",
        )
