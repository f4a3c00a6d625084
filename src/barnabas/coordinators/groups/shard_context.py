"""The state that the parts of one group shard share: its groups, its log, and the host's clock and random numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.common.host import Host
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.classic.group import ClassicGroup, HeldBytes
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.writes import Writes
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.runtime import ShardLog


@dataclass(slots=True)
class GroupContext:
    """A partition of `__consumer_offsets` that this broker coordinates."""

    host: Host
    config: GroupConfig
    log: ShardLog
    deadlines: Deadlines
    #: The groups of the consumer protocol; a group id is in at most one of the two.
    consumer_writes: Writes
    #: The memory that the groups of all shards of this broker take.
    held: HeldBytes
    #: The groups of the classic protocol, and groups that have only offsets.
    groups: dict[str, ClassicGroup] = field(default_factory=dict)

    def wall_ms(self) -> int:
        return self.host.clock.wall_ms()

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Returns the committed state of a consumer group."""
        return self.consumer_writes.group(group_id)

    def create(self, group_id: str) -> ClassicGroup:
        """Adds an empty classic group."""
        assert group_id not in self.groups, "a group is created once"
        group = self.groups[group_id] = ClassicGroup(group_id, self.deadlines, self.wall_ms())
        group.hold_in(self.held)
        return group
