"""/config/TYPE/NAME: the overrides of topics, brokers, users, clients and IP addresses, and their notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.common.host import Buffer
from barnabas.znodes import paths
from barnabas.znodes.jvm_order import properties_order
from barnabas.znodes.znode_json import json_bytes, read_object, reordered

CONFIG_VERSION: Final = 1
#: 1 had the type and the name of an entity in fields of their own, which cannot name a client of a user.
CHANGE_VERSION: Final = 2


def encode_config(overrides: Mapping[str, str]) -> bytes:
    """Returns the content of the znode. `overrides` must be in the order of insertion, because Java's order depends on
    it in part.
    """
    return json_bytes({"version": CONFIG_VERSION, "config": reordered(overrides, properties_order)})


def decode_config(path: str, data: Buffer | None) -> dict[str, str]:
    """Returns the overrides. Without content, or without `config` in it, there are no overrides, as in Kafka.

    Raises ZnodeError for any other content that is not a JSON object of strings.
    """
    if data is None or not len(data):
        return {}
    content = read_object(path, data)
    if content.has("version"):
        content.version(1, CONFIG_VERSION)
    if not content.has("config"):
        return {}
    config = content.nested("config")
    return {key: config.text(key) for key in config}


def encode_config_change(entity_path: str) -> bytes:
    """Returns a notification in version 2. `entity_path` is a path below /config: `users/alice/clients/c%201`."""
    return json_bytes({"version": CHANGE_VERSION, "entity_path": entity_path})


def decode_config_change(path: str, data: Buffer | None) -> str:
    """Returns the path below /config of the entity that changed, from versions 1 and 2. Raises ZnodeError for a path
    that names no entity.
    """
    content = read_object(path, data)
    if content.version(1, CHANGE_VERSION) == 1:
        entity_path = f"{content.text('entity_type')}/{content.text('entity_name')}"
    else:
        entity_path = content.text("entity_path")
    kind, _, name = entity_path.partition("/")
    if kind not in paths.CONFIG_TYPES or not name:
        raise content.wrong("entity_path", f"is {entity_path!r}, which names no configuration")
    return entity_path
