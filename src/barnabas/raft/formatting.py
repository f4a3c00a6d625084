"""The formatting of empty log directories, as `kafka-storage format` does, and the check of formatted ones.

    every log directory            meta.properties (version 1), bootstrap.checkpoint
    the metadata log's directory   __cluster_metadata-0/000..0-0000000000.checkpoint with the first voters,
                                   for a dynamic quorum of this node alone (`--standalone`)
                                   metadata-log-checkpoint of an empty log, for a voter of a new cluster

`meta.properties` is written last: a directory without it counts as empty, so after a crash it is formatted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.common.types import Uuid, uuid_to_text
from barnabas.metadata.features import DEFAULT_FEATURES
from barnabas.metadata.registrations import Endpoint, endpoints_of
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.raft.log_checkpoint import (
    CheckpointIdentity,
    LogCheckpoint,
    LogCheckpointFile,
    VotingRestriction,
    log_checkpoint_path,
)
from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.quorum_state import FILE_NAME as QUORUM_STATE
from barnabas.raft.snapshots import SnapshotId, encode_snapshot
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.storage.checkpoints import (
    BOOTSTRAP_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    CheckpointError,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    write_atomically,
)


class Formatted(NamedTuple):
    """The identity of this node, from its directories."""

    cluster_id: str
    #: The directory ids of all usable `log.dirs`, in their order.
    directory_ids: tuple[bytes, ...]
    #: The id of the directory with the metadata log.
    metadata_directory_id: bytes


def default_bootstrap() -> list[tuple[Message, int]]:
    return [(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in DEFAULT_FEATURES]


def ensure_formatted(
    host: Host,
    config: BrokerConfig,
    *,
    cluster_id: str | None = None,
    bootstrap: Sequence[tuple[Message, int]] | None = None,
    initial_voters: VoterSet | None = None,
    is_new_cluster: bool = False,
) -> Formatted:
    """Formats empty directories and checks the others. Raises ConfigError, with the directory, if it is not this
    node's.

    A directory that cannot be read or written is reported and left out; that of the metadata log must work, or
    ConfigError is raised. `initial_voters`: the voters of a new dynamic quorum, the same on each of them; an empty set
    for a node that joins one. By default a controller that can be a cluster of its own begins a quorum of its own.
    `is_new_cluster`: the cluster has never run, so that an empty directory cannot replace one that was lost.
    """
    wanted = list(dict.fromkeys((*config.log_dirs, config.metadata_log_dir)))
    found: dict[str, MetaProperties | None] = {}
    for directory in wanted:
        try:
            found[directory] = _read(host, config, directory)
        except OSError as error:
            _leave_out(host, config, directory, error)
    directories = list(found)
    cluster = _cluster_of(host, config, found, cluster_id)
    records = list(bootstrap) if bootstrap is not None else default_bootstrap()
    ids: dict[str, bytes] = {}
    for directory in directories:
        meta = found[directory]
        if meta is not None and meta.directory_id is not None:
            ids[directory] = meta.directory_id
            continue
        own_voter = None if initial_voters is None else initial_voters.by_id(config.node_id)
        given = own_voter.key.directory_id if own_voter is not None and directory == config.metadata_log_dir else None
        directory_id = Uuid(host.random.uuid() if given is None else given)
        try:
            if meta is None:
                voters = initial_voters
                if voters is None:
                    voters = _standalone(config, directory_id) if _is_alone(config) else VoterSet()
                _format(host, config, directory, records, voters)
                if is_new_cluster and config.is_controller and directory == config.metadata_log_dir:
                    _note_empty_log(host, config, cluster, directory_id)
            properties = encode_meta_properties(
                MetaProperties(1, config.node_id, cluster, directory_id), host.clock.wall_ms()
            )
            write_atomically(host.disk, f"{directory}/{META_PROPERTIES}", properties)
            ids[directory] = directory_id
        except OSError as error:
            _leave_out(host, config, directory, error)
    return Formatted(cluster, tuple(ids[d] for d in config.log_dirs if d in ids), ids[config.metadata_log_dir])


def read_identity(host: Host, config: BrokerConfig, directory: str) -> MetaProperties | None:
    """Returns the `meta.properties` of a directory, or None if it is not formatted.

    Raises ConfigError if the directory is not this node's.
    """
    return _read(host, config, directory)


def standalone_voters(host: Host, config: BrokerConfig) -> VoterSet:
    """Returns a voter set of this node alone, with a new directory id."""
    return _standalone(config, host.random.uuid())


def _cluster_of(
    host: Host, config: BrokerConfig, found: Mapping[str, MetaProperties | None], cluster_id: str | None
) -> str:
    """Returns the cluster id of all directories, or the given one, or a new one for a cluster of this node alone."""
    known = {meta.cluster_id for meta in found.values() if meta is not None and meta.cluster_id is not None}
    if cluster_id is not None:
        known.add(cluster_id)
    if len(known) > 1:
        stored = [f"{d} to {m.cluster_id}" for d, m in found.items() if m is not None and m.cluster_id is not None]
        given = [] if cluster_id is None else [f"--cluster-id is {cluster_id}"]
        raise ConfigError(
            f"log.dirs={','.join(found)} belong to different clusters ({'; '.join(stored + given)}): remove those "
            f"of another cluster from log.dirs, or correct cluster.id in their {META_PROPERTIES}"
        )
    if known and found[config.metadata_log_dir] is None and any(found.values()):
        raise ConfigError(
            f"{config.metadata_log_dir} has no metadata log although other directories of node {config.node_id} are "
            "formatted: restore the lost directory, or empty all of them to start a new cluster"
        )
    if not known and not _is_alone(config):
        raise ConfigError(
            f"log.dirs={','.join(found)} are empty, and node {config.node_id} is one of several: give all nodes "
            "the same cluster id (barnabas broker FILE --cluster-id ID, or kafka-storage format)"
        )
    return known.pop() if known else uuid_to_text(host.random.uuid())


def _leave_out(host: Host, config: BrokerConfig, directory: str, error: OSError) -> None:
    if directory == config.metadata_log_dir:
        raise ConfigError(f"{directory} is configured for the metadata log but cannot be used: {error}") from error
    host.faults.report(f"log directory {directory} cannot be used: {error}", error)


def _is_alone(config: BrokerConfig) -> bool:
    """Returns whether this node can be a cluster without other nodes."""
    servers = config.bootstrap_controllers
    others = [voter for voter in config.voters if voter.node_id != config.node_id]
    return config.is_controller and not others and (bool(config.voters) or len(servers) == 1)


def _read(host: Host, config: BrokerConfig, directory: str) -> MetaProperties | None:
    path = f"{directory}/{META_PROPERTIES}"
    if not host.disk.exists(path):
        _check_empty(host, config, directory)
        return None
    try:
        meta = decode_meta_properties(path, host.disk.read(path))
    except CheckpointError as error:
        raise ConfigError(f"{error}; {_identity_advice(host, config, directory)}") from error
    if meta.version != 1:
        raise ConfigError(f"{path} belongs to a broker in ZooKeeper mode (version 0); it must be migrated first")
    if meta.node_id != config.node_id:
        raise ConfigError(
            f"{path} belongs to node {meta.node_id}, but node.id={config.node_id}: use the directory of this node"
        )
    if directory == config.metadata_log_dir:
        _check_identity(host, config, path, meta)
    return meta


def _check_identity(host: Host, config: BrokerConfig, path: str, meta: MetaProperties) -> None:
    """Raises ConfigError if the directory id or cluster id differs from the one that the metadata log was written
    under.

    With another directory id a voter would not be recognised, and with another cluster id all peers would refuse it.
    """
    known = LogCheckpointFile(host.disk, config.metadata_log_dir).identity
    if known is None:
        return
    found = CheckpointIdentity.of(config.node_id, meta.cluster_id or "", meta.directory_id or bytes(16))
    for key, value, expected in (
        ("directory.id", found.directory_id, known.directory_id),
        ("cluster.id", found.cluster_id, known.cluster_id),
    ):
        if value != expected and expected not in ("-", uuid_to_text(bytes(16))):
            raise ConfigError(
                f"{path} has {key}={value}, but its metadata log was written with {key}={expected}: correct it, or "
                f"remove {log_checkpoint_path(config.metadata_log_dir)} if the change was intended"
            )


def _identity_advice(host: Host, config: BrokerConfig, directory: str) -> str:
    """Returns advice on the lines to write into a damaged `meta.properties`, as far as they are known."""
    known = LogCheckpointFile(host.disk, config.metadata_log_dir).identity
    cluster = "that of the other nodes" if known is None else known.cluster_id
    lines = f"version=1, node.id={config.node_id}, cluster.id={cluster}"
    if directory != config.metadata_log_dir:
        return f"restore the file, or write one with the lines {lines}; then the directory gets a new directory.id"
    directory_id = "its former one (with another one this is another voter)" if known is None else known.directory_id
    return f"restore the file, or write one with the lines {lines}, directory.id={directory_id}"


def _check_empty(host: Host, config: BrokerConfig, directory: str) -> None:
    """Raises ConfigError for a metadata log of an unknown owner: with a new identity, the log would belong to another
    voter.
    """
    log = metadata_log_directory(directory)
    names = host.disk.list_dir(log) if host.disk.is_dir(log) else ()
    if any(name.endswith(LOG_SUFFIX) or name == QUORUM_STATE for name in names):
        raise ConfigError(
            f"{log} contains a metadata log, but {directory}/{META_PROPERTIES} is missing: "
            f"{_identity_advice(host, config, directory)}; or empty the directory to start again"
        )


def _format(
    host: Host,
    config: BrokerConfig,
    directory: str,
    bootstrap: Sequence[tuple[Message, int]],
    voters: VoterSet,
) -> None:
    """Formats a directory except for `meta.properties`, the file that makes it this node's directory."""
    disk, wall_ms = host.disk, host.clock.wall_ms()
    disk.make_dirs(directory)
    if disk.exists(log_checkpoint_path(directory)):
        # The checkpoint belongs to a log that no longer exists.
        disk.remove(log_checkpoint_path(directory))
    content = encode_snapshot(
        bootstrap, epoch=0, wall_ms=wall_ms, last_contained_log_timestamp_ms=0, kraft_version=0, voters=None
    )
    disk.write(f"{directory}/{BOOTSTRAP_CHECKPOINT}", content, sync=True)
    is_metadata = directory == config.metadata_log_dir
    if is_metadata and config.is_controller and not config.voters and len(voters):
        _write_first_voters(host, config, voters, wall_ms)


def _note_empty_log(host: Host, config: BrokerConfig, cluster_id: str, directory_id: bytes) -> None:
    """Writes the checkpoint of a voter that has acknowledged nothing yet, so that it can vote from the beginning."""
    identity = CheckpointIdentity.of(config.node_id, cluster_id, directory_id)
    checkpoint = LogCheckpoint(restriction=VotingRestriction.NEW_CLUSTER)
    LogCheckpointFile(host.disk, config.metadata_log_dir).create(identity, checkpoint)


def _standalone(config: BrokerConfig, directory_id: bytes) -> VoterSet:
    endpoints: Sequence[Endpoint] = endpoints_of(config.controller_listeners, config.advertised_listeners)
    key = VoterKey(config.node_id, directory_id)
    return VoterSet((Voter(key, tuple(VoterEndpoint(e.name, e.host, e.port) for e in endpoints)),))


def _write_first_voters(host: Host, config: BrokerConfig, voters: VoterSet, wall_ms: int) -> None:
    content = encode_snapshot(
        (),
        epoch=0,
        wall_ms=wall_ms,
        last_contained_log_timestamp_ms=wall_ms,
        kraft_version=1,
        voters=voters,
    )
    directory = metadata_log_directory(config.metadata_log_dir)
    host.disk.make_dirs(directory)
    host.disk.write(f"{directory}/{SnapshotId(0, 0).file_name}", content, sync=True)
    host.disk.sync_dir(directory)
