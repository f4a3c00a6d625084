"""A group of the classic protocol and its members: the state, and the rules that hold within it.

    Empty                no members; the group can have committed offsets
    PreparingRebalance   members must join (again)
    CompletingRebalance  all members have joined; the leader's assignment is missing
    Stable               each member has its assignment in this generation
    Dead                 deleted, or coordinated by another broker

Invariants
- A group with members has a leader, which is one of them, except while no member has joined again yet.
- `awaiting_joins` counts the members whose JoinGroup is parked; a parked request is answered exactly once.
- An instance id belongs to one member.

This module reads no clock and writes no log: `rebalance.py`, `joining.py` and `membership.py` act on the group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final

from barnabas.common.automaton import Automaton
from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.deadlines import Deadline, Deadlines
from barnabas.coordinators.groups.subscription import CONSUMER, subscribed_topics
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]

#: The member id in the request of a member that has none yet.
UNKNOWN_MEMBER: Final = ""
NO_TIMESTAMP: Final = -1
#: The memory that a member takes in addition to its metadata.
_MEMBER_BYTES: Final = 1_000


class GroupState(Enum):
    """The states of a classic group, with the names that Kafka shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


class Member:
    """A member. `protocols` are those that it supports, in order of preference, with its metadata for each."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        session: Deadline,
        *,
        client_id: str,
        client_host: str,
        instance_id: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.session = session
        self.client_id = client_id
        self.client_host = client_host
        self.instance_id = instance_id
        self.assignment = assignment
        self.protocols: dict[str, bytes] = {}
        self.rebalance_timeout_ms = 0
        self.session_timeout_ms = 0
        #: Whether the first join phase of the member is not complete yet: its session also covers that wait.
        self.is_new = False
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Returns whether a request of this member is parked."""
        return self.join_reply is not None or self.sync_reply is not None

    @property
    def keeps_alive(self) -> bool:
        """Returns whether a parked request counts as a sign of life, so that the member need not send heartbeats."""
        return not self.is_new and self.is_waiting

    def has_protocols(self, protocols: Mapping[str, bytes]) -> bool:
        """Returns whether these are the member's current protocols with the same order and metadata."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: frozenset[str]) -> str:
        """Returns the candidate protocol that the member prefers."""
        return next(name for name in self.protocols if name in candidates)

    def complete_sync(self, response: SyncGroupResponse) -> bool:
        """Answers the parked SyncGroup. Returns False if there is none."""
        reply = self.take_sync()
        if reply is None:
            return False
        reply(response)
        return True

    def take_sync(self) -> SyncReply | None:
        """Removes and returns the parked SyncGroup, which the caller answers; None if there is none."""
        reply, self.sync_reply = self.sync_reply, None
        return reply


class HeldBytes:
    """The memory that the members of all groups of a broker take, and its limit."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int = sys.maxsize) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max


def memory_of(protocols: Mapping[str, bytes]) -> int:
    """Returns the memory in bytes that a member with these protocols takes, including a fixed cost."""
    return _MEMBER_BYTES + sum(len(name) + len(metadata) for name, metadata in protocols.items())


class ClassicGroup:
    """A classic group; the module docstring describes its states and invariants."""

    __slots__ = (
        "_automaton",
        "_held",
        "_supported",
        "awaiting_joins",
        "generation",
        "group_id",
        "held_bytes",
        "join_deadline",
        "leader_id",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "rebalance_reason",
        "state_timestamp_ms",
        "static_members",
        "subscribed",
        "sync_deadline",
    )

    def __init__(
        self, group_id: str, deadlines: Deadlines, state_timestamp_ms: int, initial: GroupState = GroupState.EMPTY
    ) -> None:
        self.group_id = group_id
        self._automaton = Automaton(TRANSITIONS, initial)
        self.previous_state = initial
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        #: The member ids that clients were given and must join with (KIP-394), each with its deadline.
        self.pending_joins: dict[str, Deadline] = {}
        #: The members of this generation that have not requested their assignment; an ordered set.
        self.pending_syncs: dict[str, None] = {}
        self.awaiting_joins = 0
        self.new_member_added = False
        #: The topics that the members consume; None if they are unknown.
        self.subscribed: frozenset[str] | None = None
        self.rebalance_reason = ""
        self.join_deadline = deadlines.new()
        self.sync_deadline = deadlines.new()
        self._supported: dict[str, int] = {}
        #: The memory that the group's members take.
        self.held_bytes = 0
        self._held = HeldBytes()

    # -- state

    @property
    def state(self) -> GroupState:
        return self._automaton.state

    def is_in(self, *states: GroupState) -> bool:
        return self._automaton.state in states

    def become(self, state: GroupState, wall_ms: int) -> None:
        """Moves the group to another state, at this wall-clock time."""
        self.previous_state = self._automaton.move(state)
        self.state_timestamp_ms = wall_ms

    @property
    def may_rebalance(self) -> bool:
        return self._automaton.may_move(GroupState.PREPARING_REBALANCE)

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether the group consumes the topic. Consumers with unknown subscriptions count as subscribed,
        since their offsets may be in use."""
        return self.is_consumers if self.subscribed is None else topic in self.subscribed

    # -- members

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def validate(self, member_id: str, instance_id: str | None) -> Member:
        """Returns the member. Raises RequestFailed if it is not in this group, or was replaced under its instance
        id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise RequestFailed(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def supports(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Returns whether a member with these protocols can join."""
        if self.is_in(GroupState.EMPTY):
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supported.get(name, 0) == len(self.members) for name in protocols)

    def add(self, member: Member, protocol_type: str | None, reply: JoinReply | None) -> None:
        """Adds a member with its parked JoinGroup; the first one determines the protocol type and leads."""
        assert member.member_id not in self.members, "a member joins once"
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, "an instance id belongs to one member"
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.park_join(member, reply)
        self.forget_pending(member.member_id)

    def update(self, member: Member, protocols: Mapping[str, bytes], *, rebalance_ms: int, session_ms: int) -> None:
        """Stores the protocols and timeouts of a member's join."""
        known = self.members.get(member.member_id) is member
        if known:
            self._count(member, -1)
        member.protocols = dict(protocols)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms
        if known:
            self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Removes a member, whose parked requests the caller has answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert not member.is_waiting, "a parked request would never be answered"
            self._count(member, -1)
            member.session.cancel()
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_syncs.pop(member_id, None)

    def replace_static(self, old: Member, new_id: str, session: Deadline) -> Member:
        """Replaces a static member by one with a new member id. The caller has answered the old member's parked
        requests."""
        assert old.instance_id is not None, "only static members are replaced"
        assert not old.is_waiting, "a parked request would never be answered"
        new = Member(
            new_id,
            session,
            client_id=old.client_id,
            client_host=old.client_host,
            instance_id=old.instance_id,
            assignment=old.assignment,
        )
        new.protocols = old.protocols
        new.rebalance_timeout_ms = old.rebalance_timeout_ms
        new.session_timeout_ms = old.session_timeout_ms
        old.session.cancel()
        del self.members[old.member_id]
        self.members[new_id] = new
        self.static_members[old.instance_id] = new_id
        self.pending_syncs.pop(old.member_id, None)
        if self.leader_id == old.member_id:
            self.leader_id = new_id
        return new

    def forget_pending(self, member_id: str) -> None:
        """Removes a member id that no client has joined with yet."""
        deadline = self.pending_joins.pop(member_id, None)
        if deadline is not None:
            deadline.cancel()

    def hold_in(self, held: HeldBytes) -> None:
        """Counts the memory of the group's members in `held`, now and after each change."""
        self._held = held
        held.bytes += self.held_bytes

    def release(self) -> None:
        """Subtracts the memory of the group's members when the group ends."""
        self._held.bytes -= self.held_bytes
        self._held = HeldBytes()

    def _count(self, member: Member, step: int) -> None:
        weight = step * memory_of(member.protocols)
        self.held_bytes += weight
        self._held.bytes += weight
        for name in member.protocols:
            self._supported[name] = self._supported.get(name, 0) + step
            if not self._supported[name]:
                del self._supported[name]

    # -- joins

    def park_join(self, member: Member, reply: JoinReply | None) -> None:
        """Stores the reply of a JoinGroup until the rebalance is complete."""
        assert member.join_reply is None, "at most one parked join per member"
        member.join_reply = None if reply is None else later(reply)
        if reply is not None:
            self.awaiting_joins += 1

    def complete_join(self, member: Member, response: JoinGroupResponse) -> bool:
        """Answers the member's parked JoinGroup. Returns False if there is none."""
        reply = self.take_join(member)
        if reply is None:
            return False
        reply(response)
        return True

    def take_join(self, member: Member) -> JoinReply | None:
        """Removes and returns the member's parked JoinGroup, which the caller answers; None if there is none."""
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self.awaiting_joins -= 1
        return reply

    @property
    def all_joined(self) -> bool:
        """Returns whether every member has joined, and no client has yet to join with its new member id."""
        return self.awaiting_joins == len(self.members) and not self.pending_joins

    def not_rejoined(self) -> Iterator[Member]:
        """Returns the members that have not joined again."""
        return iter([member for member in self.members.values() if member.join_reply is None])

    def elect_joined_leader(self) -> bool:
        """Makes a member that has joined the leader if the present leader has not. Returns False if no member has
        joined.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = next((member for member in self.members.values() if member.join_reply is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    @property
    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- generations

    def select_protocol(self) -> str:
        """Returns the protocol that all members support and that gets the most votes; of equals, the one that was voted
        for first."""
        candidates = frozenset(name for name, count in self._supported.items() if count == len(self.members))
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, wall_ms: int) -> None:
        """Starts the next generation. All members must have joined."""
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.update_subscription()
            self.become(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.update_subscription()
            self.become(GroupState.EMPTY, wall_ms)

    def update_subscription(self) -> None:
        """Derives the subscribed topics from the members' metadata."""
        name = self.protocol_name
        if not self.is_consumers:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        elif name is None:
            self.subscribed = None
        else:
            self.subscribed = subscribed_topics([member.protocols[name] for member in self.members.values()])
