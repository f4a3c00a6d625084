"""The identity of a broker in ZooKeeper mode: its cluster, and its id.

    chroot and roots -> /cluster/id, created if it is missing -> meta.properties (version 0) of each log directory
                     -> broker.id of the file, or of meta.properties, or generated: the version of /brokers/seqid

A directory of another cluster or another broker stops the broker with a one-line error; so does one of a node in KRaft
mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.zookeeper.store_steps import Steps, make_path, make_roots, not_permitted, read
from barnabas.common import zookeeper_mode
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.common.types import uuid_to_text
from barnabas.storage.checkpoints import (
    META_PROPERTIES,
    CheckpointError,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    write_atomically,
)
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import decode_cluster_id, encode_cluster_id
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import MultiReply, ZnodeStore
from barnabas.zookeeper.wire.codes import ANY_VERSION, ErrorCode, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import SetDataRequest, StatResponse


class Identity(NamedTuple):
    """A broker with its cluster; `config` has its id."""

    config: BrokerConfig
    cluster_id: str


def identify(host: Host, config: BrokerConfig, store: ZnodeStore) -> Steps[Identity | ConfigError]:
    """Determines the cluster id and the broker id, and writes them to the directories that lack them. Returns a
    ConfigError if startup must fail.
    """
    yield from make_roots(store)
    try:
        cluster_id = yield from _cluster_id(host, store)
        found = _directories(host, config)
        _check_cluster(found, cluster_id)
        broker_id = _known_id(config, found)
        if broker_id < 0:
            broker_id = yield from _generated_id(config, store)
        own = MetaProperties(0, broker_id, cluster_id, None)
        for directory, meta in found.items():
            if meta is None or meta.node_id is None or meta.cluster_id is None:
                _write(host, directory, own)
    except (ConfigError, ZnodeError) as error:
        return ConfigError(str(error))
    return Identity(config if config.node_id == broker_id else config.with_broker_id(broker_id), cluster_id)


def _cluster_id(host: Host, store: ZnodeStore) -> Steps[str]:
    wanted = uuid_to_text(host.random.uuid())
    while True:
        reply = yield from read(store, paths.CLUSTER_ID)
        if reply.znode is not None:
            return decode_cluster_id(paths.CLUSTER_ID, reply.znode.data)
        error = yield from make_path(store, paths.CLUSTER_ID, encode_cluster_id(wanted))
        if error == ErrorCode.NO_AUTH:
            raise not_permitted(paths.CLUSTER_ID)


def _directories(host: Host, config: BrokerConfig) -> dict[str, MetaProperties | None]:
    """Returns the `meta.properties` of each working directory. Raises ConfigError."""
    found: dict[str, MetaProperties | None] = {}
    for directory in config.log_dirs:
        path = f"{directory}/{META_PROPERTIES}"
        try:
            host.disk.make_dirs(directory)
            found[directory] = decode_meta_properties(path, host.disk.read(path)) if host.disk.exists(path) else None
        except CheckpointError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            host.faults.report(f"log directory {directory} cannot be used: {error}", error)
            continue
        meta = found[directory]
        if meta is not None and meta.version != 0:
            raise ConfigError(f"{path} belongs to a node in KRaft mode (version {meta.version}), not to ZooKeeper mode")
    if not found:
        raise ConfigError(f"none of log.dirs={','.join(config.log_dirs)} can be used")
    return found


def _check_cluster(found: Mapping[str, MetaProperties | None], cluster_id: str) -> None:
    for directory, meta in found.items():
        if meta is not None and meta.cluster_id is not None and meta.cluster_id != cluster_id:
            raise ConfigError(
                f"The Cluster ID {cluster_id} doesn't match stored clusterId Some({meta.cluster_id}) in "
                f"{directory}/{META_PROPERTIES}. The broker is trying to join the wrong cluster. Configured "
                "zookeeper.connect may be wrong."
            )


def _known_id(config: BrokerConfig, found: Mapping[str, MetaProperties | None]) -> int:
    """Returns the broker id of the properties file or of the directories; -1 if there is none. Raises ConfigError if
    they differ.
    """
    stored = {directory: meta.node_id for directory, meta in found.items() if meta is not None}
    ids = {broker_id for broker_id in stored.values() if broker_id is not None}
    if len(ids) > 1:
        listed = "; ".join(f"{directory} to {broker_id}" for directory, broker_id in stored.items())
        raise ConfigError(f"log.dirs belong to different brokers ({listed}): each broker needs its own directories")
    if zookeeper_mode.is_id_generated(config):
        return ids.pop() if ids else -1
    if ids and ids != {config.node_id}:
        raise ConfigError(
            f"Configured broker.id {config.node_id} doesn't match stored broker.id {ids.pop()} in {META_PROPERTIES}. "
            "If you moved your data, make sure your configured broker.id matches."
        )
    return config.node_id


def _generated_id(config: BrokerConfig, store: ZnodeStore) -> Steps[int]:
    """Generates the next broker id. If the answer to a request is lost, one id is skipped."""
    part = Part(OpCode.SET_DATA, SetDataRequest(paths.BROKER_SEQUENCE_ID, b"", ANY_VERSION))
    reply: MultiReply = yield lambda answered: store.multi([part], answered)
    if reply.refused_part is not None:
        raise ConfigError(f"{paths.BROKER_SEQUENCE_ID} cannot be written, so broker.id cannot be generated: set one")
    (answer,) = reply.results
    assert isinstance(answer, StatResponse), "setData is answered with a Stat"
    return answer.stat.version + config.int_of("reserved.broker.max.id")


def _write(host: Host, directory: str, meta: MetaProperties) -> None:
    try:
        content = encode_meta_properties(meta, host.clock.wall_ms())
        write_atomically(host.disk, f"{directory}/{META_PROPERTIES}", content)
    except OSError as error:
        host.faults.report(f"log directory {directory} cannot be used: {error}", error)
