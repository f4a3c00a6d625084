"""What the parts of one shard share: its groups and its ways to time, chance and the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.config import GroupConfig
from barnabas.coordinators.groups.group import ClassicGroup
from barnabas.coordinators.runtime import ShardLog


@dataclass(slots=True)
class GroupContext:
    """One partition of `__consumer_offsets` that is coordinated here."""

    host: Host
    config: GroupConfig
    log: ShardLog
    deadlines: Deadlines
    groups: dict[str, ClassicGroup] = field(default_factory=dict)

    def wall_ms(self) -> int:
        return self.host.clock.wall_ms()

    def create(self, group_id: str) -> ClassicGroup:
        assert group_id not in self.groups, "a group is created once"
        group = self.groups[group_id] = ClassicGroup(group_id, self.deadlines, self.wall_ms())
        return group


def storing_failed(code: ErrorCode) -> ErrorCode:
    """What a client is told when a coordinator's record could not be written."""
    match code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.FENCED_LEADER_EPOCH:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return code
