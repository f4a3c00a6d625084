"""The state and the ports that the parts of one shard's consumer groups share."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from barnabas.common.host import Host
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig, GroupOverride
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.consumer.member_deadlines import Sessions
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.coordinators.groups.consumer.writes import Writes

_SESSION_KEY = "consumer.session.timeout.ms"
_HEARTBEAT_KEY = "consumer.heartbeat.interval.ms"


@dataclass(slots=True)
class ConsumerContext:
    """The objects that the parts of one shard's consumer groups share. `downgrade(draft, ids of leaving members)`
    converts the group into a classic one if possible.
    """

    host: Host
    config: ConsumerConfig
    topics: Topics
    override_of: GroupOverride
    sessions: Sessions
    writes: Writes
    downgrade: Callable[[Draft, frozenset[str]], Generator[int, None, bool]]

    def wall_ms(self) -> int:
        return self.host.clock.wall_ms()

    def session_timeout_ms(self, group_id: str) -> int:
        """Returns the group's session timeout: its override within the broker's bounds, or the broker's default."""
        config = self.config
        override = self.override_of(group_id, _SESSION_KEY)
        if override is None:
            return config.session_timeout_ms
        return min(max(int(override), config.session_timeout_min_ms), config.session_timeout_max_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Returns the group's heartbeat interval: its override within the broker's bounds, or the broker's default."""
        config = self.config
        override = self.override_of(group_id, _HEARTBEAT_KEY)
        if override is None:
            return config.heartbeat_interval_ms
        return min(max(int(override), config.heartbeat_interval_min_ms), config.heartbeat_interval_max_ms)
