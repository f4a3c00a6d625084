"""The state of the replicas as their leader knows it, and the high watermark that follows from it.

Invariants
- The high watermark is the offset that a majority of the latest voters has on disk, once that includes a record of
  the leader's own epoch: an older record that a majority has may still be replaced (Raft, section 5.4.2).
- It never decreases, even if the voters change or a replica's offset decreases.
- A replica is a node id and a directory id. A voter's fetches with another directory id count for an observer.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.common.types import ZERO_UUID
from barnabas.raft.voters import VoterKey, VoterSet

#: An observer that has not fetched for this long is forgotten (Kafka's value).
_OBSERVER_SESSION_MS = 300_000
_CATCH_UP_MS_MAX = 3_600_000
UNKNOWN = -1


@dataclass(slots=True)
class ReplicaState:
    """A replica's progress. Times are monotonic ms, UNKNOWN before the first fetch."""

    key: VoterKey
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    #: The leader's end offset at the last fetch.
    leader_end_offset: int = UNKNOWN
    #: The directory id of the last fetch; the voters of a static quorum are listed without one.
    directory_id: bytes = ZERO_UUID
    former_directory_id: bytes = ZERO_UUID
    #: Whether the replica reports that its log currently cannot be written.
    is_unwritable: bool = False
    #: The number of times that the replica returned to its former directory id.
    returns: int = 0

    def note_directory(self, directory_id: bytes) -> None:
        if directory_id == self.directory_id:
            return
        if directory_id == self.former_directory_id != ZERO_UUID:
            self.returns += 1
        self.former_directory_id, self.directory_id = self.directory_id, directory_id

    @property
    def is_duplicate(self) -> bool:
        """Whether two processes fetch under one node id.

        A node that lost its disk changes its directory id once. A late request with the old id, from before the loss,
        can look like one return, so only a second return is proof.
        """
        return self.returns > 1


class Progress:
    """The progress of all replicas in a leader's epoch."""

    def __init__(self, own: VoterKey, voters: VoterSet, epoch_start_offset: int) -> None:
        self.own = own
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = UNKNOWN
        self._voters: dict[int, ReplicaState] = {}
        self._observers: dict[VoterKey, ReplicaState] = {}
        self._fetched: set[int] = set()
        self.set_voters(voters)

    @property
    def voters(self) -> list[ReplicaState]:
        """All voters, ascending by node id."""
        return [self._voters[node_id] for node_id in sorted(self._voters)]

    @property
    def counts_itself(self) -> bool:
        """Whether the leader is a voter: false while the removal of this node waits for its commit."""
        return any(state.key.node_id == self.own.node_id for state in self._voters.values())

    def set_voters(self, voters: VoterSet) -> None:
        """Sets the voters. The state of a replica is kept when the replica becomes a voter or stops being one."""
        before = list(self._voters.values())
        self._voters = {}
        for voter in voters:
            known = next((state for state in before if _is(voter.key, state.key) or _is_named(voter.key, state)), None)
            known = known or next((state for key, state in self._observers.items() if _is(voter.key, key)), None)
            state = ReplicaState(voter.key) if known is None else known
            self._observers.pop(state.key, None)
            state.key = voter.key
            self._voters[voter.key.node_id] = state
        for state in before:
            if self._voters.get(state.key.node_id) is not state and state.key.node_id != self.own.node_id:
                self._observers[state.key] = state
        self._fetched.intersection_update(self._voters)

    def state_of(self, key: VoterKey) -> ReplicaState | None:
        voter = self._voters.get(key.node_id)
        return voter if voter is not None and _is(voter.key, key) else self._observers.get(key)

    def duplicate_ids(self) -> list[int]:
        """Returns the voters whose node id two processes use."""
        return [node_id for node_id, state in sorted(self._voters.items()) if state.is_duplicate]

    def observers(self, now_ms: int) -> list[ReplicaState]:
        for key in [k for k, s in self._observers.items() if now_ms - s.last_fetch_ms > _OBSERVER_SESSION_MS]:
            del self._observers[key]
        return [self._observers[key] for key in sorted(self._observers)]

    # Updates.

    def on_own_flush(self, end_offset: int, now_ms: int) -> bool:
        """Records the flushed end of this node's log. Returns whether the high watermark moved."""
        state = self._voters.get(self.own.node_id)
        if state is None:
            return False
        assert end_offset >= state.end_offset, "the leader's flushed end never decreases"
        state.end_offset = end_offset
        state.directory_id = self.own.directory_id
        state.last_fetch_ms = state.last_caught_up_ms = now_ms
        return self.advance()

    def on_fetch(self, key: VoterKey, fetch_offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """Records a fetch at `fetch_offset`: everything before it is on the replica's disk.

        Returns whether the high watermark moved.
        """
        assert key.node_id != self.own.node_id, "a leader does not follow itself"
        state = self.state_of(key)
        if state is None:
            state = self._observers[key] = ReplicaState(key)
        if fetch_offset >= leader_end_offset:
            state.last_caught_up_ms = now_ms
        elif state.leader_end_offset > 0 and fetch_offset >= state.leader_end_offset:
            state.last_caught_up_ms = state.last_fetch_ms
        state.end_offset = fetch_offset
        state.note_directory(key.directory_id)
        state.last_fetch_ms = now_ms
        state.leader_end_offset = leader_end_offset
        return self.advance()

    def advance(self) -> bool:
        """Advances the high watermark to the offset that a majority has. Returns whether it moved."""
        ends = sorted((state.end_offset for state in self._voters.values()), reverse=True)
        if not ends:
            return False
        candidate = ends[len(ends) // 2]
        if candidate <= self.epoch_start_offset or candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def note_fetch(self, key: VoterKey) -> bool:
        """Records a fetch for the check of the quorum. Returns True when a majority has fetched since the last True."""
        state = self._voters.get(key.node_id)
        if state is not None and _is(state.key, key):
            self._fetched.add(key.node_id)
        if len(self._fetched) < self._others_needed:
            return False
        self._fetched.clear()
        return True

    @property
    def _others_needed(self) -> int:
        majority = len(self._voters) // 2 + 1
        return majority - 1 if self.counts_itself else majority

    @property
    def needs_others(self) -> bool:
        return self._others_needed > 0

    # Queries.

    def is_caught_up(self, key: VoterKey, now_ms: int) -> bool:
        """Returns whether this replica can become a voter: it was caught up once, and fetched within the last hour."""
        state = self.state_of(key)
        return (
            state is not None
            and state.last_caught_up_ms != UNKNOWN
            and state.last_fetch_ms != UNKNOWN
            and now_ms - state.last_fetch_ms < _CATCH_UP_MS_MAX
        )

    def successors(self) -> list[VoterKey]:
        """Returns the other voters by end offset, longest log first; those whose log cannot be written are last."""
        others = [state for state in self.voters if state.key.node_id != self.own.node_id]
        return [state.key for state in sorted(others, key=lambda state: (state.is_unwritable, -state.end_offset))]

    def writable_successor(self, fetched_since_ms: int) -> ReplicaState | None:
        """Returns the first successor, or None if its log cannot be written or it has not fetched since
        `fetched_since_ms`.
        """
        first = next(iter(self.successors()), None)
        state = None if first is None else self._voters[first.node_id]
        if (
            state is None
            or state.is_unwritable
            or state.last_fetch_ms == UNKNOWN
            or state.last_fetch_ms < fetched_since_ms
        ):
            return None
        return state


def _is(voter: VoterKey, key: VoterKey) -> bool:
    return VoterSet.is_same(voter, key)


def _is_named(voter: VoterKey, state: ReplicaState) -> bool:
    """Returns whether this dynamic voter is a static voter, now listed with the directory id by which it fetches."""
    is_static = state.key.directory_id == ZERO_UUID
    return is_static and state.key.node_id == voter.node_id and state.directory_id == voter.directory_id
