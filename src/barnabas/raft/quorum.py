"""This node's role in the metadata quorum (KIP-595): one class per role, one gatekeeper that changes it.

    UNATTACHED --> CANDIDATE --> LEADER --> RESIGNED --> UNATTACHED (next epoch)

Invariants
- The epoch never goes back. At most one vote is given in an epoch, and it is on disk before anybody hears of it; so is
  leadership.
- Only `become_*` changes the role. A new role starts from its own data, never from what the last one left behind.
- The leader's high watermark is the offset that a majority has on disk, and only once that includes a record of its own
  epoch: an older record that a majority has may still be replaced (Raft, section 5.4.2).

A quorum of one elects itself: candidate and leader in one step, with one write. Voters that ask each other come on top.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.raft.quorum_state import NONE, ElectionState
from barnabas.raft.voters import VoterKey, VoterSet


@dataclass(slots=True)
class Unattached:
    """No leader is known in this epoch."""

    epoch: int
    voted: VoterKey | None = None


@dataclass(slots=True)
class Candidate:
    epoch: int
    #: Who granted this node its vote, itself included.
    granting: tuple[VoterKey, ...]


@dataclass(slots=True)
class Leader:
    epoch: int
    #: Offset of this epoch's first record (its LeaderChange).
    epoch_start_offset: int
    granting: tuple[VoterKey, ...]
    #: Voter's node id -> end of what it has on disk. (No two voters have one node id.)
    end_offsets: dict[int, int] = field(default_factory=dict)
    high_watermark: int = 0

    def update(self, voter_id: int, end_offset: int, voters: VoterSet) -> bool:
        """This voter has everything before `end_offset` on disk. Whether the high watermark moved."""
        assert end_offset >= self.end_offsets.get(voter_id, 0), "what is on a voter's disk stays there"
        self.end_offsets[voter_id] = end_offset
        known = sorted((self.end_offsets.get(voter.key.node_id, 0) for voter in voters), reverse=True)
        candidate = known[voters.majority - 1]
        if candidate <= self.epoch_start_offset or candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True


@dataclass(slots=True)
class Resigned:
    """Was the leader of this epoch, and will not be again in it."""

    epoch: int


Role = Unattached | Candidate | Leader | Resigned


class QuorumState:
    """The gatekeeper. `persist` puts an election state on disk and returns when it is there."""

    def __init__(
        self, own: VoterKey, voters: VoterSet, stored: ElectionState | None, persist: Callable[[ElectionState], None]
    ) -> None:
        self.own = own
        self.voters = voters
        self._persist = persist
        voted = None
        if stored is not None and stored.voted_id != NONE:
            voted = VoterKey(stored.voted_id, stored.voted_directory_id)
        epoch = stored.epoch if stored is not None else 0
        # Who led this epoch as this very node has lost that with its memory.
        was_leader = stored is not None and stored.leader_id == own.node_id
        self.role: Role = Resigned(epoch) if was_leader else Unattached(epoch, voted)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.own.node_id if isinstance(self.role, Leader) else NONE

    @property
    def is_voter(self) -> bool:
        return self.voters.find(self.own) is not None

    def become_candidate(self) -> Candidate:
        """In the next epoch, with this node's own vote. Nobody else has been told yet, so nothing need be on disk."""
        assert self.is_voter, "only a voter stands for election"
        assert not isinstance(self.role, Leader), "a leader resigns before it stands again"
        self.role = Candidate(self.role.epoch + 1, (self.own,))
        return self.role

    def become_leader(self, epoch_start_offset: int) -> Leader:
        candidate = self.role
        assert isinstance(candidate, Candidate), "only a candidate wins"
        assert len(candidate.granting) >= self.voters.majority, "a majority elects"
        self._persist(ElectionState(candidate.epoch, self.own.node_id))
        self.role = Leader(candidate.epoch, epoch_start_offset, candidate.granting)
        return self.role

    def become_resigned(self) -> Resigned:
        assert isinstance(self.role, Leader), "only a leader resigns"
        self.role = Resigned(self.role.epoch)
        return self.role
