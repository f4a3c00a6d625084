"""What the parts of one shard share: its groups and its ways to time, chance and the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.common.host import Host
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.classic.group import ClassicGroup, HeldBytes
from barnabas.coordinators.groups.config import GroupConfig
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.writes import Writes
from barnabas.coordinators.runtime import ShardLog


@dataclass(slots=True)
class GroupContext:
    """One partition of `__consumer_offsets` that is coordinated here."""

    host: Host
    config: GroupConfig
    log: ShardLog
    deadlines: Deadlines
    #: Groups of the consumer protocol; a group id is in one of the two at most.
    consumer_writes: Writes
    #: Of all groups of this broker.
    held: HeldBytes
    #: Groups of the classic protocol, and groups that have nothing but offsets.
    groups: dict[str, ClassicGroup] = field(default_factory=dict)

    def wall_ms(self) -> int:
        return self.host.clock.wall_ms()

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """As committed."""
        return self.consumer_writes.group(group_id)

    def create(self, group_id: str) -> ClassicGroup:
        assert group_id not in self.groups, "a group is created once"
        group = self.groups[group_id] = ClassicGroup(group_id, self.deadlines, self.wall_ms())
        group.hold_in(self.held)
        return group
