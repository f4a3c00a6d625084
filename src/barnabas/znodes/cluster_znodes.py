"""/controller and the znodes that exist once in a cluster: its id, the controller's epoch, producer ids, features,
migration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.znodes.jvm_order import immutable_order, mutable_order
from barnabas.znodes.znode_json import JsonObject, ZnodeError, json_bytes, read_object, reordered, text_of

CONTROLLER_VERSION: Final = 2
#: Kafka writes the version as text here, not as a number.
CLUSTER_ID_VERSION: Final = "1"
PRODUCER_ID_BLOCK_VERSION: Final = 1
MIGRATION_VERSION: Final = 0
#: Version 1 of /feature has the lowest finalized level too; brokers below inter.broker.protocol.version 3.3 write it.
FEATURE_VERSIONS: Final = (1, 2)

_INT32_MAX: Final = (1 << 31) - 1
_LEVEL_MAX: Final = (1 << 15) - 1


class ControllerRegistration(NamedTuple):
    """The content of /controller. `kraft_controller_epoch` is above 0 while KRaft migrates the cluster."""

    broker_id: int
    timestamp_ms: int = -1
    kraft_controller_epoch: int = -1


def encode_controller(registration: ControllerRegistration) -> bytes:
    return json_bytes(
        {
            "version": CONTROLLER_VERSION,
            "brokerid": registration.broker_id,
            "timestamp": str(registration.timestamp_ms),
            "kraftControllerEpoch": registration.kraft_controller_epoch,
        }
    )


def decode_controller(path: str, data: Buffer | None) -> ControllerRegistration:
    """Returns the registration from version 1 or 2."""
    content = read_object(path, data)
    epoch = content.int32("kraftControllerEpoch") if content.has("kraftControllerEpoch") else -1
    timestamp = content.int64_text("timestamp") if content.has("timestamp") else -1
    return ControllerRegistration(content.int32("brokerid"), timestamp, epoch)


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(path: str, data: Buffer | None) -> int:
    text = text_of(path, data)
    if not re.fullmatch(r"-?[0-9]{1,10}", text, re.ASCII) or not -1 <= int(text) <= _INT32_MAX:
        raise ZnodeError(path, f"holds {text!r} instead of an epoch")
    return int(text)


def encode_cluster_id(cluster_id: str) -> bytes:
    return json_bytes({"version": CLUSTER_ID_VERSION, "id": cluster_id})


def decode_cluster_id(path: str, data: Buffer | None) -> str:
    content = read_object(path, data)
    cluster_id = content.text("id")
    if not cluster_id:
        raise content.wrong("id", "is empty")
    return cluster_id


class ProducerIdBlock(NamedTuple):
    """The content of /latest_producer_id_block: the block that was allocated last, and the broker that got it. The
    first and the last id belong to the block.
    """

    broker_id: int
    first_id: int
    last_id: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return json_bytes(
        {
            "version": PRODUCER_ID_BLOCK_VERSION,
            "broker": block.broker_id,
            "block_start": str(block.first_id),
            "block_end": str(block.last_id),
        }
    )


def decode_producer_id_block(path: str, data: Buffer | None) -> ProducerIdBlock | None:
    """Returns the block; None without content, which the znode lacks before the first block."""
    if data is None or not len(data):
        return None
    content = read_object(path, data)
    block = ProducerIdBlock(content.int32("broker"), content.int64_text("block_start"), content.int64_text("block_end"))
    if not 0 <= block.first_id <= block.last_id:
        raise content.wrong("block_end", f"is {block.last_id}, but the block begins at {block.first_id}")
    return block


class Features(NamedTuple):
    """The content of /feature: the finalized features with their levels. `enabled` is false before release 2.7."""

    version: int
    enabled: bool
    levels: Mapping[str, int]


def encode_features(features: Features) -> bytes:
    named = {
        name: {"max_version_level": level, **({"min_version_level": level} if features.version == 1 else {})}
        for name, level in features.levels.items()
    }
    content = {
        "version": features.version,
        "status": int(features.enabled),
        "features": reordered(named, immutable_order),
    }
    return json_bytes(reordered(content, partial(mutable_order, built_with=3)))


def decode_features(path: str, data: Buffer | None) -> Features:
    """Returns the features from version 1 or 2; from version 1 it uses the highest finalized levels, as Kafka does."""
    content = read_object(path, data)
    version = content.version(*FEATURE_VERSIONS)
    status = content.int32("status")
    if status not in (0, 1):
        raise content.wrong("status", f"is {status}, expected 0 or 1")
    named = content.nested("features")
    return Features(version, bool(status), {name: _level(named.nested(name), version) for name in named})


def _level(feature: JsonObject, version: int) -> int:
    level = feature.int32("max_version_level")
    lowest = feature.int32("min_version_level") if version == 1 else 1
    if not 1 <= lowest <= level <= _LEVEL_MAX:
        raise feature.wrong("max_version_level", f"is {level}, expected {max(lowest, 1)} to {_LEVEL_MAX}")
    return level


class MigrationState(NamedTuple):
    """The content of /migration (KIP-866): the position up to which a KRaft controller has written its metadata to
    ZooKeeper.
    """

    kraft_controller_id: int = -1
    kraft_controller_epoch: int = -1
    kraft_metadata_offset: int = -1
    kraft_metadata_epoch: int = -1


def encode_migration(state: MigrationState) -> bytes:
    content = {"version": MIGRATION_VERSION, **state._asdict()}
    return json_bytes(reordered(content, immutable_order))


def decode_migration(path: str, data: Buffer | None) -> MigrationState:
    content = read_object(path, data)
    content.version(0, MIGRATION_VERSION)
    return MigrationState(
        content.int32("kraft_controller_id"),
        content.int32("kraft_controller_epoch"),
        content.int64("kraft_metadata_offset"),
        content.int32("kraft_metadata_epoch"),
    )
