"""The group coordinator's part of the broker configuration."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.common.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of groups and offsets; the defaults are Kafka's."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    offset_metadata_size_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_codec: int = 0
    #: The time after which a new member that waits in a long rebalance is removed; a client that is still alive joins
    #: again.
    new_member_join_timeout_ms: int = 300_000

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> GroupConfig:
        return cls(
            session_timeout_min_ms=config.int_of("group.min.session.timeout.ms"),
            session_timeout_max_ms=config.int_of("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.int_of("group.initial.rebalance.delay.ms"),
            group_size_max=config.int_of("group.max.size"),
            offset_metadata_size_max=config.int_of("offset.metadata.max.bytes"),
            offsets_retention_ms=config.offsets_retention_ms,
            offsets_retention_check_interval_ms=config.int_of("offsets.retention.check.interval.ms"),
            offsets_commit_timeout_ms=config.int_of("offsets.commit.timeout.ms"),
            offsets_topic_codec=config.int_of("offsets.topic.compression.codec"),
        )
