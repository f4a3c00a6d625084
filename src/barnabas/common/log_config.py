"""The settings of one partition's log: the topic's own over the broker's defaults.

A `LogConfig` is a value. When the configuration of a topic or the broker's defaults change, `ReplicaManager` gives each
affected log a new one (`_reconfigure` in `replication/replica_manager.py`). Field names are the topic keys with "_"
for "." (`segment_bytes` is `segment.bytes`); defaults are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from barnabas.common.config_keys import TOPIC_KEYS, Value, show
from barnabas.common.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.common.config import BrokerConfig

_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _MAX_LONG
    flush_ms: int = _MAX_LONG
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = _MAX_LONG
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = _MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    #: The value of `internal.segment.bytes`, if set (`resolve`).
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deletable(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def jitter_bound_ms(self) -> int:
        """Returns how much earlier than `segment.ms` a segment can roll, at random."""
        return min(self.segment_jitter_ms, self.longest_segment_ms)

    @property
    def longest_segment_ms(self) -> int:
        """Returns the longest time that a segment stays active: only inactive segments are compacted, so it must not
        exceed `max.compaction.lag.ms`.
        """
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    def value_of(self, name: str) -> Value:
        """Returns the value of the topic key `name`."""
        value: Value = getattr(self, _FIELDS[name])
        return value

    @staticmethod
    def resolve(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
        """Returns the settings of a topic with these `overrides` on this broker. Raises ConfigError if one is invalid.

        A key that this release does not know is skipped: the metadata may come from a later one.
        """
        values: dict[str, Any] = dict(broker.log_defaults())
        for name, text in overrides.items():
            if (key := TOPIC_KEYS.get(name)) is not None:
                values[_FIELDS[name]] = key.parse(text)
        internal_segment_bytes = values.get("internal_segment_bytes")
        if internal_segment_bytes is not None:
            values["segment_bytes"] = internal_segment_bytes
        return LogConfig(**values)


def field_name(key: str) -> str:
    """Returns the field of `LogConfig` for this topic key."""
    return _FIELDS[key]


_FIELDS = {name: name.replace(".", "_").replace("-", "_") for name in TOPIC_KEYS}
assert set(_FIELDS.values()) == {field.name for field in fields(LogConfig)}, "LogConfig and the topic keys differ"


def validate_topic_overrides(overrides: Mapping[str, str]) -> None:
    """Raises ConfigError, with Kafka's message, if these settings are not allowed for a topic."""
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[name] = key.parse(text)

    def number(name: str) -> int:
        value = values.get(name, TOPIC_KEYS[name].default_value())
        assert isinstance(value, int)
        return value

    if values.get("remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if number("min.compaction.lag.ms") > number("max.compaction.lag.ms"):
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({show(number('min.compaction.lag.ms'))}) > "
            f"max.compaction.lag.ms ({show(number('max.compaction.lag.ms'))})"
        )
