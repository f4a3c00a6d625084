"""The table of all znodes that have content: their paths and their codecs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.znodes import (
    acl_znodes,
    admin_znodes,
    broker_znodes,
    cluster_znodes,
    config_znodes,
    paths,
    token_znodes,
    topic_znodes,
)


class Codec(NamedTuple):
    """The codec of one kind of znode. `decode(path, data)` raises ZnodeError."""

    kind: str
    decode: Callable[[str, Buffer | None], Any]
    encode: Callable[[Any], bytes]


def _acl_change(pattern: acl_znodes.ResourcePattern) -> bytes:
    return acl_znodes.acl_change(pattern)[1]


_AT_PATH: Final = {
    paths.CLUSTER_ID: Codec("cluster id", cluster_znodes.decode_cluster_id, cluster_znodes.encode_cluster_id),
    paths.CONTROLLER: Codec("controller", cluster_znodes.decode_controller, cluster_znodes.encode_controller),
    paths.CONTROLLER_EPOCH: Codec(
        "controller epoch", cluster_znodes.decode_controller_epoch, cluster_znodes.encode_controller_epoch
    ),
    paths.PRODUCER_ID_BLOCK: Codec(
        "producer id block", cluster_znodes.decode_producer_id_block, cluster_znodes.encode_producer_id_block
    ),
    paths.FEATURE: Codec("features", cluster_znodes.decode_features, cluster_znodes.encode_features),
    paths.MIGRATION: Codec("migration", cluster_znodes.decode_migration, cluster_znodes.encode_migration),
    paths.PREFERRED_REPLICA_ELECTION: Codec(
        "preferred replica election", admin_znodes.decode_partitions, admin_znodes.encode_partitions
    ),
    paths.REASSIGN_PARTITIONS: Codec(
        "reassignment", admin_znodes.decode_reassignment, admin_znodes.encode_reassignment
    ),
}

_CONFIG: Final = Codec("configuration", config_znodes.decode_config, config_znodes.encode_config)
_ACLS: Final = Codec("ACLs", acl_znodes.decode_acls, acl_znodes.encode_acls)
_ACL_CHANGE: Final = Codec("ACL change", acl_znodes.decode_acl_change, _acl_change)

_LIKE_PATH: Final = (
    ("/brokers/ids/[0-9]+", Codec("broker", broker_znodes.decode_registration, broker_znodes.encode_registration)),
    ("/brokers/topics/[^/]+", Codec("topic", topic_znodes.decode_topic, topic_znodes.encode_topic)),
    (
        "/brokers/topics/[^/]+/partitions/[0-9]+/state",
        Codec("partition state", topic_znodes.decode_state, topic_znodes.encode_state),
    ),
    (
        "/config/changes/.+",
        Codec("configuration change", config_znodes.decode_config_change, config_znodes.encode_config_change),
    ),
    ("/config/(topics|clients|brokers|ips)/[^/]+", _CONFIG),
    ("/config/users/[^/]+(/clients/[^/]+)?", _CONFIG),
    (
        "/isr_change_notification/.+",
        Codec("ISR changes", admin_znodes.decode_partitions, admin_znodes.encode_partitions),
    ),
    (
        "/log_dir_event_notification/.+",
        Codec("log directory event", admin_znodes.decode_log_dir_event, admin_znodes.encode_log_dir_event),
    ),
    ("/kafka-acl/[^/]+/.+", _ACLS),
    ("/kafka-acl-extended/prefixed/[^/]+/.+", _ACLS),
    ("/kafka-acl-changes/.+", _ACL_CHANGE),
    ("/kafka-acl-extended-changes/.+", _ACL_CHANGE),
    ("/delegation_token/tokens/[^/]+", Codec("delegation token", token_znodes.decode_token, token_znodes.encode_token)),
    (
        "/delegation_token/token_changes/[^/]+",
        Codec("delegation token change", token_znodes.decode_token_change, token_znodes.encode_token_change),
    ),
)
_PATTERNS: Final = tuple((re.compile(pattern), codec) for pattern, codec in _LIKE_PATH)


def codec_of(path: str) -> Codec | None:
    """Returns the codec of the znode at this path below Kafka's chroot; None if the znode has no content."""
    found = _AT_PATH.get(path)
    if found is not None:
        return found
    return next((codec for pattern, codec in _PATTERNS if pattern.fullmatch(path)), None)
