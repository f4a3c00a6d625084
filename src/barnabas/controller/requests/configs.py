"""Changes of configurations: topics, brokers and their cluster-wide default, groups, client metrics.

Whether a broker key can be changed (read-only keys, keys of single brokers only) is checked where the request arrives.
This module checks what only the controller knows: whether the resource exists, whether its values are valid together,
and what a change of min.insync.replicas means for eligible leader replicas (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, ConfigType
from barnabas.common.config_rules import check_client_metrics, check_group
from barnabas.common.errors import ConfigError, ErrorCode, RequestFailed
from barnabas.common.log_config import validate_topic_overrides
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import MIN_ISR, ControllerView
from barnabas.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from barnabas.metadata.topics import TopicImage
from barnabas.metadata.versions import partition_version
from barnabas.protocol.messages.records_metadata import ClearElrRecord, ConfigRecord, PartitionChangeRecord


class _Change(NamedTuple):
    key: str
    operation: int
    value: str | None


class ConfigChange(_Change):
    """A change of one key of one resource, with the operation numbers of IncrementalAlterConfigs."""

    __slots__ = ()

    SET: ClassVar[int] = 0
    DELETE: ClassVar[int] = 1
    APPEND: ClassVar[int] = 2
    SUBTRACT: ClassVar[int] = 3


#: (resource type, resource name, changes)
ResourceChange = tuple[int, str, Sequence[tuple[str, int, str | None]]]
#: The outcome for one resource: error code and message.
AlterResult = tuple[ErrorCode, str | None]

#: The maximum number of keys of one resource in one request.
CHANGES_MAX: Final = 1_000

_OPERATIONS: Final = {ConfigChange.APPEND: "APPEND", ConfigChange.SUBTRACT: "SUBTRACT"}


def alter_configs(
    view: ControllerView, changes: Sequence[ResourceChange], actor: str, *, replace: bool = False
) -> Result[list[AlterResult]]:
    """Returns one result per resource, in order. `replace` (AlterConfigs) resets keys that are not named."""
    records: list[Versioned] = []
    results: list[AlterResult] = []
    done: list[str] = []
    for resource_type, name, entries in changes:
        wanted = [ConfigChange(*entry) for entry in entries]
        try:
            if replace:
                wanted += _deletions(view, resource_type, name, {change.key for change in wanted})
            records += alter_resource(view, resource_type, name, wanted)
        except RequestFailed as error:
            results.append((error.code, error.message))
            continue
        done.append(f"{_TYPE_NAMES.get(resource_type, resource_type)} {name or 'default'}")
        results.append((ErrorCode.NONE, None))
    return Result(records, results, Cause(ControllerEvent.ALTER_CONFIGS, actor, ", ".join(done)))


def _deletions(view: ControllerView, resource_type: int, name: str, kept: set[str]) -> list[ConfigChange]:
    present = view.image.config_of(resource_type, name)
    return [ConfigChange(key, ConfigChange.DELETE, None) for key in sorted(present) if key not in kept]


def alter_resource(
    view: ControllerView, resource_type: int, name: str, changes: Sequence[ConfigChange], *, is_new: bool = False
) -> list[Versioned]:
    """Returns the records for one resource. Raises RequestFailed if the change is not allowed."""
    check_count(changes)
    before = view.image.config_of(resource_type, name)
    after: dict[str, str] = dict(before)
    records: list[Versioned] = []
    for change in changes:
        value = _new_value(resource_type, change, after.get(change.key), view, name)
        # A broker reloads the files that a value names (key stores), so an unchanged value is written too.
        if value == after.get(change.key) and resource_type != BROKER_RESOURCE:
            continue
        if value is None:
            after.pop(change.key, None)
        else:
            after[change.key] = value
        record = ConfigRecord(resource_type=resource_type, resource_name=name, name=change.key, value=value)
        records.append((record, 0))
    _check_values(view.config, resource_type, name, after)
    if not is_new:
        _check_exists(view, resource_type, name)
    if view.image.elr_enabled and any(change.key == MIN_ISR for change in changes):
        records += _min_isr_records(view, resource_type, name, records)
    return records


def check_count(changes: Sequence[object]) -> None:
    """Raises RequestFailed if one resource has more keys than any real one: each key costs time wherever the
    configuration is read.
    """
    if len(changes) > CHANGES_MAX:
        raise RequestFailed(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def _new_value(
    resource_type: int, change: ConfigChange, current: str | None, view: ControllerView, name: str
) -> str | None:
    if change.operation == ConfigChange.SET:
        return change.value
    if change.operation == ConfigChange.DELETE:
        return None
    operation = _OPERATIONS.get(change.operation)
    if operation is None:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation} is not allowed.")
    key = _keys_of(resource_type).get(change.key)
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation} to key {change.key} because its type is not LIST."
        raise RequestFailed(ErrorCode.INVALID_CONFIG, text)
    if current is None:
        current = _default_of(resource_type, change.key, view, name)
    parts = current.split(",") if current else []
    for part in (change.value or "").split(","):
        if change.operation == ConfigChange.APPEND and part not in parts:
            parts.append(part)
        elif change.operation == ConfigChange.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _default_of(resource_type: int, key: str, view: ControllerView, name: str) -> str | None:
    if resource_type == TOPIC_RESOURCE:
        return view.topic_value(name, key).text
    return _keys_of(resource_type)[key].default


def _keys_of(resource_type: int) -> Mapping[str, ConfigKey]:
    return _KEYS.get(resource_type, {})


_KEYS: Final[dict[int, Mapping[str, ConfigKey]]] = {
    TOPIC_RESOURCE: TOPIC_KEYS,
    BROKER_RESOURCE: BROKER_KEYS,
    CLIENT_METRICS_RESOURCE: CLIENT_METRICS_KEYS,
    GROUP_RESOURCE: GROUP_KEYS,
}
_TYPE_NAMES: Final = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    BROKER_LOGGER_RESOURCE: "broker logger",
    CLIENT_METRICS_RESOURCE: "client metrics",
    GROUP_RESOURCE: "group",
}


def _check_exists(view: ControllerView, resource_type: int, name: str) -> None:
    if resource_type == TOPIC_RESOURCE and name not in view.image.topics_by_name:
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if resource_type == BROKER_RESOURCE and name:
        node_id = int(name)
        if node_id not in view.image.brokers and node_id not in view.image.controllers:
            raise RequestFailed(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _check_values(config: BrokerConfig, resource_type: int, name: str, values: Mapping[str, str]) -> None:
    """Raises RequestFailed if the resource is invalid, or its values are not valid together."""
    if resource_type == BROKER_RESOURCE:
        _check_broker_name(name)
        return
    if resource_type not in (TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        text = f"Unable to handle resource type {resource_type} with name {name!r} on the controller."
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    kind = _TYPE_NAMES[resource_type].replace(" ", "-")
    if not name:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Default {kind} resources are not allowed.")
    try:
        if resource_type == TOPIC_RESOURCE:
            validate_topic_overrides(values)
            return
        if resource_type == GROUP_RESOURCE:
            check_group(values, config)
        else:
            check_client_metrics(values)
    except ConfigError as error:
        raise RequestFailed(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_broker_name(name: str) -> None:
    """Checks that the name is a node id, or empty for the cluster-wide default."""
    if not name:
        return
    if not (name.isascii() and name.removeprefix("-").isdigit()):
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if int(name) < 0:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")


def _min_isr_records(
    view: ControllerView, resource_type: int, name: str, records: Sequence[Versioned]
) -> list[Versioned]:
    """Returns the records that clear the ELR, which was computed with the old min ISR, where it can become wrong."""
    changed = [record for record, _ in records if isinstance(record, ConfigRecord) and record.name == MIN_ISR]
    if not changed:
        return []
    if resource_type == TOPIC_RESOURCE:
        topic = view.image.topics_by_name.get(name)
        return [(ClearElrRecord(topic_name=name), 0), *(_kept_elrs(view, [topic]) if topic is not None else ())]
    if resource_type == BROKER_RESOURCE and name:
        text = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        raise RequestFailed(ErrorCode.INVALID_CONFIG, text)
    if resource_type == BROKER_RESOURCE:
        if changed[-1].value is None:
            text = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
            raise RequestFailed(ErrorCode.INVALID_CONFIG, text)
        return [(ClearElrRecord(topic_name=""), 0), *_kept_elrs(view, _with_elr(view.image))]
    return []


def _with_elr(image: MetadataImage) -> list[TopicImage]:
    return sorted((image.topics_by_id[topic_id] for topic_id in image.topics_with_elr), key=lambda topic: topic.name)


def _kept_elrs(view: ControllerView, topics: Iterable[TopicImage]) -> Iterator[Versioned]:
    """Yields records that restore the ELR and the last known leader of partitions without an in-sync replica.

    Nothing is committed without a leader, so an eligible replica still has all committed records, whatever the new
    min ISR is. Without the ELR nobody could be elected cleanly.
    """
    version = partition_version(view.image.metadata_version)
    for topic in topics:
        for partition_id, partition in enumerate(topic.partitions):
            if partition.isr or not (partition.elr or partition.last_known_elr):
                continue
            record = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=partition_id)
            if partition.elr:
                record.eligible_leader_replicas = list(partition.elr)
            if partition.last_known_elr:
                record.last_known_elr = list(partition.last_known_elr)
            yield record, version
