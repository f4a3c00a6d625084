"""Consumers of a group as small automata, and a ledger of the answers that they received, for tests with arbitrary
interleavings.

A client does one thing at a time: join, sync, then heartbeat. It revokes its partitions before it joins again (eager).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tests.support.group_world import Answer, GroupWorld, commit_errors

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

GROUP = "g"
INSTANCES = ("one", "two")
PARTITIONS = range(6)
SESSION_MS = 10_000
REBALANCE_MS = 20_000


class Ledger:
    """The answers of the coordinators until now; every answer is checked against all earlier ones."""

    def __init__(self) -> None:
        #: The number of the coordinator. Coordinators replace each other; the next one can reuse a generation that was
        #: not stored.
        self.incarnation = 0
        self.leaders: dict[tuple[int, int], str] = {}
        self.protocols: dict[tuple[int, int], str | None] = {}
        self.owners: dict[tuple[int, int], str] = {}

    def joined(self, incarnation: int, response: JoinGroupResponse, version: int) -> None:
        at = (incarnation, response.generation_id)
        if not (version < 9 and self._is_old_name_of_leader(response)):
            leader = _identity(response.leader)
            assert self.leaders.setdefault(at, leader) == leader, "one leader in a generation"
        assert self.protocols.setdefault(at, response.protocol_name) == response.protocol_name, "one protocol"
        if response.members and not response.skip_assignment:
            assert response.leader == response.member_id, "only the leader gets the list of members"
            assert response.member_id in {member.member_id for member in response.members}

    def _is_old_name_of_leader(self, response: JoinGroupResponse) -> bool:
        """Returns whether the answer names the predecessor of a static leader of an old version, so that it does not
        assign.
        """
        return response.leader != response.member_id

    def synced(self, generation: int, who: str, partitions: frozenset[int]) -> None:
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), who)
            assert owner == who, f"partition {partition} of generation {generation} went to {owner} and {who}"


def _identity(member_id: str) -> str:
    """Returns the identity of a member. A restarted static member has another member id and is the same member."""
    name = member_id.split("-")[0]
    return name if name in INSTANCES else member_id


class Phase(Enum):
    IDLE = "idle"
    JOINING = "joining"
    SYNCING = "syncing"
    MEMBER = "member"
    FENCED = "fenced"


class Client:
    """One consumer."""

    def __init__(self, name: str, instance_id: str | None, version: int, ledger: Ledger) -> None:
        self.name = name
        self.instance_id = instance_id
        self.version = version
        self.ledger = ledger
        self.phase = Phase.IDLE
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        #: The incarnation of the coordinator that got the last request.
        self._requested = 0
        self._join: Answer[JoinGroupResponse] | None = None
        self._sync: Answer[SyncGroupResponse] | None = None

    def __repr__(self) -> str:
        return f"{self.name}({self.phase.value}, {self.member_id[-4:]}, generation {self.generation})"

    def restart(self) -> None:
        """Restarts the client, as an operator does after it was fenced."""
        self.phase, self.member_id, self.generation, self.owned = Phase.IDLE, "", -1, frozenset()

    def step(self, world: GroupWorld) -> None:
        """Continues as far as possible without waiting."""
        moves: dict[Phase, Callable[[GroupWorld], bool]] = {
            Phase.IDLE: self._send_join,
            Phase.JOINING: self._take_join,
            Phase.SYNCING: self._take_sync,
        }
        for _ in range(8):
            move = moves.get(self.phase)
            if move is None or not move(world):
                return

    def beat(self, world: GroupWorld) -> None:
        """Sends a heartbeat if the client is a member; otherwise takes the next step."""
        if self.phase is not Phase.MEMBER:
            self.step(world)
            return
        error = world.heartbeat(GROUP, self.generation, self.member_id, instance_id=self.instance_id)
        if error is not ErrorCode.NONE:
            self._trouble(error)
            self.step(world)

    def leave(self, world: GroupWorld) -> None:
        world.leave(GROUP, (self.member_id, self.instance_id))
        self.phase, self.owned = Phase.FENCED, frozenset()

    def commit(self, world: GroupWorld, partition: int, offset: int) -> Callable[[], ErrorCode | None]:
        """Commits an offset. The result returns the error code, or None while there is no answer."""
        answer = world.commit(
            GROUP,
            {("orders", partition): offset},
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )
        return lambda: None if answer.is_parked else commit_errors(answer)["orders", partition]

    def _trouble(self, error: ErrorCode) -> None:
        self.owned = frozenset()
        self.phase = Phase.IDLE
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.phase = Phase.FENCED
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation = -1
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        else:
            assert error in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            ), f"{self.name} received {error.name}"

    def _send_join(self, world: GroupWorld) -> bool:
        self.owned = frozenset()
        self._requested = self.ledger.incarnation
        self._join = world.join(
            GROUP,
            self.member_id,
            instance_id=self.instance_id,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            version=self.version,
        )
        self.phase = Phase.JOINING
        return True

    def _take_join(self, world: GroupWorld) -> bool:
        assert self._join is not None
        if self._join.is_parked:
            return False
        response = self._join.response
        if self._join.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.phase = response.member_id, Phase.IDLE
            return True
        if self._join.error is not ErrorCode.NONE:
            self._trouble(self._join.error)
            return False
        self.ledger.joined(self._requested, response, self.version)
        self.member_id, self.generation = response.member_id, response.generation_id
        given: dict[str, bytes] = {}
        if response.leader == self.member_id and not response.skip_assignment:
            names = [member.member_id for member in response.members]
            given = {name: bytes(PARTITIONS[i :: len(names)]) for i, name in enumerate(names)}
        self._sync = world.sync(GROUP, self.generation, self.member_id, given, instance_id=self.instance_id)
        self.phase = Phase.SYNCING
        return True

    def _take_sync(self, world: GroupWorld) -> bool:
        assert self._sync is not None
        if self._sync.is_parked:
            return False
        if self._sync.error is not ErrorCode.NONE:
            self._trouble(self._sync.error)
            return False
        self.owned = frozenset(self._sync.response.assignment)
        self.ledger.synced(self.generation, self.instance_id or self.member_id, self.owned)
        self.phase = Phase.MEMBER
        return False
