"""DescribeConfigs: for each key of a resource its effective value, the source of that value, and its synonyms.

    topic            topic override > dynamic broker > dynamic default > properties file > default
    broker N         dynamic broker > dynamic default > properties file > default; this broker only
    broker (no name) the cluster-wide dynamic configs only
    group            group override > this broker's group.* config
    client metrics   the subscription's config > default
    broker logger    the level of each logger

A sensitive value is never returned. A key that this broker does not know counts as sensitive (KIP-226).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.configs import loggers
from barnabas.common.config import BrokerConfig
from barnabas.common.config_docs import HEEDED, ZOOKEEPER
from barnabas.common.config_keys import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    READ_ONLY,
    TOPIC_KEYS,
    ConfigKey,
    ConfigSource,
    ConfigType,
    ResourceType,
    Value,
    show,
)
from barnabas.common.errors import MALFORMED_REQUEST, ErrorCode, RequestFailed
from barnabas.common.log_config import LogConfig
from barnabas.common.topic_names import topic_name_problem
from barnabas.metadata.image import MetadataImage


class Synonym(NamedTuple):
    """A source of a value, in the order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A key of a resource with its effective value; None if it is sensitive."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    synonyms: Sequence[Synonym]
    documentation: str | None = None


def describe(config: BrokerConfig, image: MetadataImage, resource_type: int, name: str) -> list[ConfigEntry]:
    """Returns the entries of a resource, ordered by name. Raises RequestFailed if there is no such resource."""
    if resource_type == ResourceType.TOPIC:
        return _describe_topic(config, image, name)
    if resource_type == ResourceType.BROKER:
        return _describe_broker(config, name)
    if resource_type == ResourceType.BROKER_LOGGER:
        return _describe_loggers(config, name)
    if resource_type == ResourceType.GROUP:
        return _describe_group(config, image, name)
    if resource_type == ResourceType.CLIENT_METRICS:
        return _describe_client_metrics(image, name)
    raise RequestFailed(ErrorCode.INVALID_REQUEST, MALFORMED_REQUEST)


def parse_broker_id(name: str, what: str = "Broker id") -> int:
    digits = name[1:] if name[:1] in ("-", "+") else name
    if not (digits.isascii() and digits.isdigit()):
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}")
    return int(name)


def _describe_topic(config: BrokerConfig, image: MetadataImage, topic: str) -> list[ConfigEntry]:
    problem = topic_name_problem(topic)
    if problem is not None:
        raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if topic not in image.topics_by_name:
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return topic_entries(config, image.topic_config(topic))


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Returns the entries of a topic with these overrides, ordered by name."""
    defaults = LogConfig.resolve(config, {})
    entries = []
    for name, key in TOPIC_KEYS.items():
        if key.internal and name not in overrides:
            continue
        value = show(key.parse(overrides[name]) if name in overrides else defaults.value_of(name))
        synonyms = [] if key.server_default is None else _broker_synonyms(config, key.server_default)
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, ConfigSource.DYNAMIC_TOPIC))
        entries.append(_entry(key, value, ConfigSource.DEFAULT, synonyms))
    return entries


def _entry(key: ConfigKey, value: str | None, default_source: ConfigSource, synonyms: Sequence[Synonym]) -> ConfigEntry:
    """Returns the entry of a key that can be changed; its source is that of the first synonym."""
    source = synonyms[0].source if synonyms else default_source
    return ConfigEntry(key.name, value, key.type, source, False, False, synonyms, _document(key))


def _broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    key = config.base_key(name)
    hidden = key is None or key.is_sensitive
    return [Synonym(other, None if hidden else text, source) for source, other, text in config.synonyms_of(name)]


def _describe_broker(config: BrokerConfig, name: str) -> list[ConfigEntry]:
    if not name:
        return [
            _broker_entry(config, key, config.cluster_default[key], defaults=True)
            for key in sorted(config.cluster_default)
        ]
    broker_id = parse_broker_id(name)
    if broker_id != config.node_id:
        raise RequestFailed(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {config.node_id} or empty string, but received {name}",
        )
    layers = {**config.originals, **config.cluster_default, **config.per_broker}
    names = {key for key, declared in config.keys.items() if not declared.internal} | layers.keys()
    return [_broker_entry(config, key, layers.get(key)) for key in sorted(names)]


def _broker_entry(config: BrokerConfig, name: str, text: str | None, *, defaults: bool = False) -> ConfigEntry:
    """Returns the entry of a broker key. `text` is its configured value, None if it is not set. With `defaults` only
    the cluster-wide level counts."""
    key = config.base_key(name)
    hidden = key is None or key.is_sensitive
    value: str | None = None
    if not hidden:
        value = text if defaults or name not in config.keys else show(config.value_of(name))
    synonyms = _broker_synonyms(config, name)
    if defaults:
        synonyms = [synonym for synonym in synonyms if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
    return ConfigEntry(
        name,
        value,
        ConfigType.UNKNOWN if key is None else key.type,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        key is None or key.update_mode == READ_ONLY or key.name != name,
        hidden,
        synonyms,
        None if key is None else _document(key),
    )


def _describe_loggers(config: BrokerConfig, name: str) -> list[ConfigEntry]:
    if not name:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if parse_broker_id(name) != config.node_id:
        text = f"Unexpected broker id, expected {config.node_id} but received {name}"
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        ConfigEntry(logger, level, ConfigType.UNKNOWN, source, False, False, ())
        for logger, level in loggers.levels().items()
    ]


def group_default(config: BrokerConfig, key: ConfigKey) -> Value:
    """Returns the value of a key that a group does not override: this broker's `group.<key>`, if there is one."""
    name = f"group.{key.name}"
    return config.value_of(name) if name in config.keys else key.default_value()


def _describe_group(config: BrokerConfig, image: MetadataImage, group: str) -> list[ConfigEntry]:
    if not group:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    overrides = image.config_of(ResourceType.GROUP, group)
    entries = []
    for name, key in GROUP_KEYS.items():
        is_set = name in overrides
        value = show(key.parse(overrides[name]) if is_set else group_default(config, key))
        source = ConfigSource.GROUP if is_set else ConfigSource.DEFAULT
        entries.append(_entry(key, value, source, [Synonym(name, value, source)]))
    return entries


def _describe_client_metrics(image: MetadataImage, subscription: str) -> list[ConfigEntry]:
    if not subscription:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    overrides = image.config_of(ResourceType.CLIENT_METRICS, subscription)
    entries = []
    for name, key in CLIENT_METRICS_KEYS.items():
        value = show(key.parse(overrides[name]) if name in overrides else key.default_value())
        synonyms = [Synonym(name, value, ConfigSource.CLIENT_METRICS)] if name in overrides else []
        entries.append(_entry(key, value, ConfigSource.DEFAULT, synonyms))
    return entries


def _document(key: ConfigKey) -> str | None:
    name = key.server_default or key.name
    return HEEDED.get(name) or ZOOKEEPER.get(name)
