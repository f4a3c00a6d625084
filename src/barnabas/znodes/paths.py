"""The paths of Kafka's znodes below its chroot, and the names in them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from barnabas.common.types import TopicPartition

CONSUMERS: Final = "/consumers"
BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
#: An empty znode, whose data version generates broker ids (`broker.id.generation.enable`).
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"
MIGRATION: Final = "/migration"
ACLS: Final = "/kafka-acl"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
DELEGATION_TOKEN: Final = "/delegation_token"
TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"

#: Types of configurations, as they are named in paths.
TOPIC_CONFIGS: Final = "topics"
CLIENT_CONFIGS: Final = "clients"
USER_CONFIGS: Final = "users"
BROKER_CONFIGS: Final = "brokers"
IP_CONFIGS: Final = "ips"
CONFIG_TYPES: Final = (TOPIC_CONFIGS, CLIENT_CONFIGS, USER_CONFIGS, BROKER_CONFIGS, IP_CONFIGS)
#: The name of the default entity of a type.
DEFAULT_ENTITY: Final = "<default>"

_BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

#: The beginnings of the names of sequential znodes, as the paths to create them.
NEW_CONFIG_CHANGE: Final = f"{CONFIG_CHANGES}/config_change_"
NEW_ISR_CHANGE: Final = f"{ISR_CHANGES}/isr_change_"
NEW_LOG_DIR_EVENT: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"
NEW_ACL_CHANGE: Final = f"{ACL_CHANGES}/acl_changes_"
NEW_EXTENDED_ACL_CHANGE: Final = f"{EXTENDED_ACL_CHANGES}/acl_changes_"
NEW_TOKEN_CHANGE: Final = f"{TOKEN_CHANGES}/token_change_"

#: The znodes that a broker makes before anything else, in Kafka's order (`ZkData.PersistentZkPaths`).
PERSISTENT_PATHS: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, partition_id: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition_id}"


def state(name: str, partition_id: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition_id}/state"


def partition_of_state(path: str) -> TopicPartition | None:
    """Returns the partition whose state znode has this path, or None for any other path."""
    match path.split("/"):
        case ["", "brokers", "topics", name, "partitions", number, "state"] if is_number(number):
            return TopicPartition(name, int(number))
        case _:
            return None


def is_number(text: str) -> bool:
    """Returns whether the text is a number as Kafka writes it: ASCII digits without leading zeros."""
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def config(kind: str, name: str) -> str:
    """Returns the path of a configuration. `name` is already a path: `U/clients/C`, sanitized where it must be."""
    return f"{CONFIG}/{kind}/{name}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def token(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def sequence_number(path: str) -> int | None:
    """Returns the number that ZooKeeper gave to a sequential znode, or None for any other znode."""
    digits = path[-10:]
    return int(digits) if len(digits) == 10 and digits.isascii() and digits.isdigit() else None


def sanitize(name: str) -> str:
    """Returns the form in which the name of a user or client appears in paths (`Sanitizer.sanitize`)."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str | None:
    """Returns the name of a user or client from its form in paths (`Sanitizer.desanitize`); None for a text that is not
    percent-encoded UTF-8.
    """
    if _BROKEN_ESCAPE.search(name):
        return None
    try:
        return unquote_to_bytes(name.replace("+", " ")).decode()
    except UnicodeDecodeError:
        return None
