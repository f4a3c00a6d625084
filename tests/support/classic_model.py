"""The model of a classic group for its explorer: its members, its state and its deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.group_world import Answer

from barnabas.common.errors import ErrorCode

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
NEVER = 10**15


@dataclass
class ModelMember:
    member_id: str
    instance_id: str | None
    protocols: dict[str, bytes]
    session_ms: int
    rebalance_ms: int
    join: Answer[Any] | None = None
    sync: Answer[Any] | None = None
    is_new: bool = False
    due_ms: int = NEVER
    assignment: bytes = b""


@dataclass
class ModelGroup:
    """The model of the group."""

    state: str = EMPTY
    before: str = EMPTY
    generation: int = 0
    leader: str | None = None
    protocol: str | None = None
    members: dict[str, ModelMember] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)
    new_added: bool = False
    join_ms: int = NEVER
    #: The delay that has begun, and what is left after it; None while no initial delay is running.
    initial: tuple[int, int] | None = None
    sync_ms: int = NEVER


def selected(group: ModelGroup) -> str:
    """Returns the protocol that most members prefer among those that all support."""
    members = list(group.members.values())
    votes = [next(n for n in each.protocols if all(n in e.protocols for e in members)) for each in members]
    return max(votes, key=votes.count)


def loaded(stored: ModelGroup, now_ms: int) -> ModelGroup:
    """Returns the group as a new coordinator has it: all sessions begin anew, and nobody waits."""
    members = {
        member_id: replace(member, due_ms=now_ms + member.session_ms) for member_id, member in stored.members.items()
    }
    return replace(stored, members=members, pending={}, unsynced=set())


def memory_of(group: ModelGroup | None) -> int:
    """Returns the memory of all members: what each has sent, and a thousand bytes."""
    members = [] if group is None else group.members.values()
    return sum(1_000 + len("".join(each.protocols)) + len(b"".join(each.protocols.values())) for each in members)


def shown_of(value: Any) -> Any:
    if isinstance(value, list):
        return [(row.member_id, row.group_instance_id, bytes(row.metadata)) for row in value]
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


def refusal_of(group: ModelGroup | None, member_id: str, instance_id: str | None) -> ErrorCode:
    """Returns why a request of this member and instance is refused."""
    members = {} if group is None else group.members
    if instance_id is not None:
        owner = next((each for each in members.values() if each.instance_id == instance_id), None)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in members else ErrorCode.UNKNOWN_MEMBER_ID
