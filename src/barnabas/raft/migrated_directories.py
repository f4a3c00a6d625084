"""The log directories of a broker in ZooKeeper mode, turned into those of a KRaft node.

    bootstrap.checkpoint      first: what the new cluster begins with
    metadata-log-checkpoint   an empty metadata log: without it, existing partitions would prove that the log was lost
    meta.properties           last: version 0 (broker.id) becomes 1 (node.id, cluster.id, directory.id)

Nothing else is touched. All directories are checked before the first is changed, and a directory that is done already
stays as it is: after a crash or a failure the same call does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.common.types import Uuid
from barnabas.protocol.message import Message
from barnabas.raft.log_checkpoint import CheckpointIdentity, LogCheckpoint, LogCheckpointFile, VotingRestriction
from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.snapshots import encode_snapshot
from barnabas.storage.checkpoints import (
    BOOTSTRAP_CHECKPOINT,
    LOG_CHECKPOINT_FILE,
    META_PROPERTIES,
    CheckpointError,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    write_atomically,
)


class DirectoryState(Enum):
    """The state in which a migration finds a directory."""

    EMPTY = "empty"
    ZOOKEEPER = "in ZooKeeper mode"
    KRAFT = "migrated already"


class DirectoryPlan(NamedTuple):
    """A directory: its state, and the node it belongs to."""

    directory: str
    state: DirectoryState
    node_id: int


def plan_directories(
    host: Host, directories: Sequence[str], cluster_id: str, node_id: int | None = None
) -> list[DirectoryPlan]:
    """Returns the plan for each directory of one node, and changes nothing.

    `node_id` is needed for directories that are all empty, such as those of a new controller. Raises ConfigError for a
    directory of another cluster or another node, and for one with a damaged `meta.properties`.
    """
    found = {directory: _identity(host, directory) for directory in directories}
    ids = {meta.node_id for meta in found.values() if meta is not None}
    if node_id is not None:
        ids.add(node_id)
    if len(ids) > 1:
        raise ConfigError(
            f"the directories belong to different nodes ({_listed(found)}): migrate each node by itself, with its own "
            "log directories"
        )
    if not ids:
        raise ConfigError(f"{', '.join(directories)} are empty: give the id of their node")
    (node,) = ids
    if node is None:
        raise ConfigError(
            f"{META_PROPERTIES} without broker.id: start the broker in ZooKeeper mode once, which adds it"
        )
    for directory, meta in found.items():
        if meta is not None and meta.cluster_id not in (None, cluster_id):
            raise ConfigError(
                f"{directory} belongs to cluster {meta.cluster_id}, ZooKeeper to cluster {cluster_id}: this is not the "
                "ZooKeeper of this broker, or the chroot is wrong"
            )
    return [DirectoryPlan(directory, _state(meta), node) for directory, meta in found.items()]


def _identity(host: Host, directory: str) -> MetaProperties | None:
    path = f"{directory}/{META_PROPERTIES}"
    if not host.disk.is_dir(directory):
        raise ConfigError(f"{directory} is not a directory")
    if not host.disk.exists(path):
        unfinished = (BOOTSTRAP_CHECKPOINT, LOG_CHECKPOINT_FILE)
        others = [name for name in host.disk.list_dir(directory) if name not in unfinished]
        if others:
            raise ConfigError(
                f"{directory} has no {META_PROPERTIES} and is not empty: it is not a broker's log directory"
            )
        return None
    try:
        return decode_meta_properties(path, host.disk.read(path))
    except CheckpointError as error:
        raise ConfigError(str(error)) from error


def _state(meta: MetaProperties | None) -> DirectoryState:
    if meta is None:
        return DirectoryState.EMPTY
    return DirectoryState.ZOOKEEPER if meta.version == 0 else DirectoryState.KRAFT


def _listed(found: dict[str, MetaProperties | None]) -> str:
    return "; ".join(f"{directory} to {meta.node_id}" for directory, meta in found.items() if meta is not None)


def migrate_directories(
    host: Host, plans: Sequence[DirectoryPlan], cluster_id: str, records: Sequence[tuple[Message, int]]
) -> None:
    """Carries the plans out. `records` are the first records of the new cluster, the same on all of its nodes."""
    disk, wall_ms = host.disk, host.clock.wall_ms()
    content = encode_snapshot(
        records, epoch=0, wall_ms=wall_ms, last_contained_log_timestamp_ms=0, kraft_version=0, voters=None
    )
    for plan in plans:
        if plan.state is DirectoryState.KRAFT:
            continue
        assert not disk.exists(metadata_log_directory(plan.directory)), "a metadata log without a node id"
        write_atomically(disk, f"{plan.directory}/{BOOTSTRAP_CHECKPOINT}", content)
        directory_id = host.random.uuid()
        identity = MetaProperties(1, plan.node_id, cluster_id, Uuid(directory_id))
        LogCheckpointFile(disk, plan.directory).create(
            CheckpointIdentity.of(plan.node_id, cluster_id, directory_id),
            LogCheckpoint(restriction=VotingRestriction.NEW),
        )
        write_atomically(disk, f"{plan.directory}/{META_PROPERTIES}", encode_meta_properties(identity, wall_ms))
