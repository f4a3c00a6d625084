"""The consumer groups' part of the configuration: the broker's `group.consumer.*`, and overrides of single groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.common.config import BrokerConfig

_UPGRADING: Final = frozenset({"upgrade", "bidirectional"})
_DOWNGRADING: Final = frozenset({"downgrade", "bidirectional"})

#: (group id, key) -> the group's override of a key such as `consumer.session.timeout.ms`; None if the broker's setting
#: applies.
GroupOverride = Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The settings of consumer groups; the defaults are Kafka's."""

    assignors: tuple[str, ...] = ("uniform", "range")
    session_timeout_ms: int = 45_000
    session_timeout_min_ms: int = 45_000
    session_timeout_max_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_min_ms: int = 5_000
    heartbeat_interval_max_ms: int = 15_000
    group_size_max: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000
    may_upgrade: bool = True
    may_downgrade: bool = True

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> ConsumerConfig:
        policy = config.str_of("group.consumer.migration.policy").lower()
        return cls(
            assignors=tuple(config.list_of("group.consumer.assignors")),
            session_timeout_ms=config.int_of("group.consumer.session.timeout.ms"),
            session_timeout_min_ms=config.int_of("group.consumer.min.session.timeout.ms"),
            session_timeout_max_ms=config.int_of("group.consumer.max.session.timeout.ms"),
            heartbeat_interval_ms=config.int_of("group.consumer.heartbeat.interval.ms"),
            heartbeat_interval_min_ms=config.int_of("group.consumer.min.heartbeat.interval.ms"),
            heartbeat_interval_max_ms=config.int_of("group.consumer.max.heartbeat.interval.ms"),
            group_size_max=config.int_of("group.consumer.max.size"),
            regex_refresh_interval_ms=config.int_of("group.consumer.regex.refresh.interval.ms"),
            may_upgrade=policy in _UPGRADING,
            may_downgrade=policy in _DOWNGRADING,
        )
