"""The role of this node in the metadata quorum (KIP-595, KIP-996): one class per role, and the state that changes it.

`TRANSITIONS` is the table of role changes (docs/states-quorum.svg). Observers are UNATTACHED or FOLLOWER; a voter whose
removal is not known to be committed can still be elected (`Core.can_be_candidate`).

Invariants
- The epoch never decreases, and at most one vote is given in an epoch. Vote, epoch and leader are on disk before any
  message of the same event is sent (`Ready.promise`), and a vote, candidacy or leadership takes effect only then
  (`on_saved`). Only on a full disk a node follows an epoch that is not on disk (`is_saved`): it gives no vote and
  appends no record in it, so a restart forgets no promise.
- Only `become_*` and `vote_for` change the role; `Follower.has_fetched` alone is also set by elections and following.
  A new role starts from its own data, not from the former role's.
- A pre-vote is not a vote: it is granted to many, promises nothing, and changes nothing on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.common.types import ZERO_UUID
from barnabas.raft.log_checkpoint import VotingRestriction
from barnabas.raft.progress import Progress
from barnabas.raft.quorum_state import NONE, ElectionState
from barnabas.raft.ready import ReadyDraft
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import VoterEndpoint, VoterKey, VoterSet

Endpoints = tuple[VoterEndpoint, ...]


@dataclass(slots=True)
class Votes:
    """The responses of the voters in one election, by node id."""

    granted: set[int]
    rejected: set[int] = field(default_factory=set)

    def note(self, node_id: int, *, granted: bool) -> None:
        """Records a response; only the first one of a node counts."""
        if node_id not in self.granted and node_id not in self.rejected:
            (self.granted if granted else self.rejected).add(node_id)

    def is_won(self, voters: VoterSet) -> bool:
        return sum(node_id in self.granted for node_id in voters.ids) >= voters.majority

    def is_lost(self, voters: VoterSet, gone: Collection[int] = ()) -> bool:
        """Returns whether a majority is impossible without those that refused.

        If one has rejected, those that are `gone` count as rejecting too; otherwise it is worth waiting for them.
        """
        rejecting = {node_id for node_id in voters.ids if node_id in self.rejected}
        if rejecting:
            rejecting |= {node_id for node_id in voters.ids if node_id in gone and node_id not in self.granted}
        return len(rejecting) > len(voters) - voters.majority


@dataclass(slots=True)
class Unattached:
    """The role without a known leader in this epoch, or (`leader_id`) with one that does not respond."""

    epoch: int
    voted: VoterKey | None = None
    leader_id: int = NONE
    leader_endpoints: Endpoints = ()


@dataclass(slots=True)
class Prospective:
    """The role of a node that requests pre-votes: it asks whether it would be elected, before a new epoch disturbs
    other nodes.
    """

    epoch: int
    votes: Votes
    voted: VoterKey | None = None
    leader_id: int = NONE
    leader_endpoints: Endpoints = ()


@dataclass(slots=True)
class Candidate:
    epoch: int
    votes: Votes


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voted: VoterKey | None = None
    #: Whether the leader has answered a fetch recently, so that no other leader is needed.
    has_fetched: bool = False


@dataclass(slots=True)
class Leader:
    epoch: int
    granting: tuple[VoterKey, ...]
    progress: Progress

    @property
    def epoch_start_offset(self) -> int:
        """The offset of this epoch's first record, its LeaderChange."""
        return self.progress.epoch_start_offset


@dataclass(slots=True)
class Resigned:
    """The role of a node that was the leader of this epoch, and will not lead it again."""

    epoch: int
    #: The voters that should start the next election, the best one first.
    successors: tuple[VoterKey, ...] = ()


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned

#: The role changes that a node makes by itself: after an election timeout, a majority of pre-votes or votes, a fetch
#: timeout, the leader's first message in this epoch, or a resignation.
TRANSITIONS: Final[Mapping[type[Role], frozenset[type[Role]]]] = {
    Unattached: frozenset({Prospective, Follower}),
    Prospective: frozenset({Unattached, Candidate, Follower}),
    Candidate: frozenset({Prospective, Leader, Follower}),
    Follower: frozenset({Prospective}),
    Leader: frozenset({Resigned}),
    Resigned: frozenset(),
}
#: The roles that a node in any role can change to when a message has a higher epoch.
OF_HIGHER_EPOCH: Final[frozenset[type[Role]]] = frozenset({Unattached, Follower})


def can_follow(before: Role, after: Role, *, is_alone: bool) -> bool:
    """Returns whether `after` is a valid next role. The only voter (`is_alone`) needs no pre-votes, and so becomes a
    candidate of the next epoch from every role but LEADER.
    """
    kind = type(after)
    if after.epoch == before.epoch:
        return kind in TRANSITIONS[type(before)]
    if after.epoch < before.epoch:
        return False
    if kind is Candidate:
        return isinstance(before, Prospective) or (is_alone and not isinstance(before, Leader))
    return kind in OF_HIGHER_EPOCH


class QuorumState:
    """The current role, and the only place that changes it.

    State that must be on disk goes into `draft`; `on_saved` or `on_not_saved` reports the result. `on_role` is called
    with the former and the new role when the change is complete.
    """

    def __init__(
        self,
        own: VoterKey,
        history: VoterHistory,
        stored: ElectionState | None,
        draft: ReadyDraft,
        on_role: Callable[[Role, Role], None],
    ) -> None:
        self.own = own
        self.history = history
        self._draft = draft
        self._on_role = on_role
        #: An epoch that is followed but not on disk; it stays here while the disk is full.
        self._unsaved_epoch: ElectionState | None = None
        #: The role or vote that takes effect when its promise is on disk.
        self._next: Candidate | Leader | VoterKey | None = None
        #: Why this node does not vote although it is a voter.
        self.restriction = VotingRestriction.NONE
        epoch = stored.epoch if stored is not None else 0
        voted = None
        if stored is not None and stored.voted_id != NONE:
            voted = VoterKey(stored.voted_id, stored.voted_directory_id)
        self.role: Role
        if stored is not None and stored.leader_id == own.node_id:
            # This node led the epoch before its restart, and no longer knows which records it had appended.
            self.role = Resigned(epoch)
        elif stored is not None and stored.leader_id != NONE:
            self.role = Unattached(epoch, voted, stored.leader_id)
        else:
            self.role = Unattached(epoch, voted)

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch; -1 if unknown. A leader that resigned is still known as the leader of its epoch."""
        role = self.role
        if isinstance(role, Leader | Resigned):
            return self.own.node_id
        return NONE if isinstance(role, Candidate) else role.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        role = self.role
        return role.leader_endpoints if isinstance(role, Follower | Unattached | Prospective) else ()

    @property
    def is_voter(self) -> bool:
        return self.voters.find(self.own) is not None

    @property
    def was_voter(self) -> bool:
        """Whether this node is among the voters before the latest ones.

        Until the latest ones are committed its log can be needed, though not its vote.
        """
        return self.history.voters_before.find(self.own) is not None

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter, which needs no other node to be elected."""
        return self.voters.is_only(self.own)

    # Votes.

    def would_grant(self, candidate: VoterKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """Returns whether this node would vote for `candidate` in the current epoch.

        `up_to_date`: the candidate's log is at least as up to date as this node's.
        """
        role = self.role
        if isinstance(role, Leader):
            return False
        if pre_vote:
            return up_to_date and not (isinstance(role, Follower) and role.has_fetched)
        if isinstance(role, Candidate | Resigned):
            return False
        if role.voted is not None:
            same = role.voted.node_id == candidate.node_id
            return same and role.voted.directory_id in (ZERO_UUID, candidate.directory_id)
        return role.leader_id == NONE and up_to_date

    def vote_for(self, candidate: VoterKey) -> None:
        """Promises a vote, once per epoch; an earlier vote stays as it is."""
        role = self.role
        assert isinstance(role, Unattached | Prospective | Follower), "the others have voted for themselves"
        if role.voted is None:
            assert not isinstance(role, Follower), "no vote in an epoch with a leader"
            self._promise_then(_state(role.epoch, role.leader_id, candidate), candidate)
            return
        assert role.voted.node_id == candidate.node_id, "at most one vote in an epoch"

    # Roles.

    def become_unattached(self, epoch: int) -> None:
        """Changes to UNATTACHED: in a new epoch without a known leader, or in the current one after a failed
        pre-vote.
        """
        role = self.role
        if epoch == role.epoch:
            assert isinstance(role, Prospective), "only a failed pre-vote stays in its epoch"
            self._take(Unattached(epoch, role.voted, role.leader_id, role.leader_endpoints))
            return
        assert epoch > role.epoch, "an epoch never decreases"
        self._promise_epoch(_state(epoch, NONE, None))
        self._take(Unattached(epoch))

    def become_prospective(self) -> None:
        role = self.role
        assert self.is_voter or self.was_voter, "only a voter can be elected"
        assert isinstance(role, Unattached | Follower | Candidate), f"a {role} does not request pre-votes"
        votes = Votes({self.own.node_id})
        if isinstance(role, Candidate):
            self._take(Prospective(role.epoch, votes, self.own))
        else:
            self._take(Prospective(role.epoch, votes, role.voted, role.leader_id, role.leader_endpoints))

    def become_candidate(self) -> None:
        """Changes to CANDIDATE of the next epoch, as soon as this node's own vote is on disk.

        The only voter requests no votes, and saves its own when it leads.
        """
        role = self.role
        assert self.is_voter or self.was_voter, "only a voter can be elected"
        assert not isinstance(role, Leader), "a leader resigns before the next election"
        candidate = Candidate(role.epoch + 1, Votes({self.own.node_id}))
        if self.is_alone:
            self._take(candidate)
            return
        assert isinstance(role, Prospective), "a candidate has won its pre-votes"
        assert role.votes.is_won(self.voters), "a majority granted the pre-vote"
        self._promise_then(_state(candidate.epoch, NONE, self.own), candidate)

    def become_leader(self, epoch_start_offset: int) -> None:
        """Changes to LEADER as soon as the promise is on disk, so that the node does not lead the same epoch again
        after a restart.
        """
        candidate = self.role
        assert isinstance(candidate, Candidate), "only a candidate wins"
        assert candidate.votes.is_won(self.voters), "a majority elects"
        granting = tuple(voter.key for voter in self.voters if voter.key.node_id in candidate.votes.granted)
        leader = Leader(candidate.epoch, granting, Progress(self.own, self.voters, epoch_start_offset))
        self._promise_then(_state(candidate.epoch, self.own.node_id, None), leader)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        """Changes to FOLLOWER in a new epoch or in this one, or adds endpoints if it already follows this leader."""
        role = self.role
        assert leader_id not in (NONE, self.own.node_id), f"{leader_id} cannot be followed"
        if epoch > role.epoch:
            self._promise_epoch(_state(epoch, leader_id, None))
            self._take(Follower(epoch, leader_id, endpoints))
            return
        assert epoch == role.epoch, "an epoch never decreases"
        assert not isinstance(role, Leader | Resigned), f"epoch {epoch} has two leaders"
        assert self.leader_id in (NONE, leader_id), f"epoch {epoch} has two leaders"
        voted = self.own if isinstance(role, Candidate) else role.voted
        if self.leader_id == NONE:
            self._promise_epoch(_state(epoch, leader_id, voted))
        if isinstance(role, Follower):
            role.leader_endpoints = endpoints or role.leader_endpoints
        else:
            self._take(Follower(epoch, leader_id, endpoints, voted))

    def become_resigned(self) -> None:
        leader = self.role
        assert isinstance(leader, Leader), "only a leader resigns"
        self._take(Resigned(leader.epoch, tuple(leader.progress.successors())))

    @property
    def is_saved(self) -> bool:
        """Whether epoch, leader and vote are on disk."""
        return self._unsaved_epoch is None

    def promise_again(self) -> None:
        """Repeats the promise that a full disk prevented: records of an epoch can be appended only after its promise is
        saved.
        """
        if self._unsaved_epoch is not None:
            self._draft.promise(self._unsaved_epoch, is_binding=True)

    def on_saved(self) -> None:
        """Changes to the role, or records the vote, whose promise is now on disk."""
        self._unsaved_epoch = None
        taken, self._next = self._next, None
        if isinstance(taken, VoterKey):
            assert isinstance(self.role, Unattached | Prospective), "no other role waits for its vote"
            self.role.voted = taken
        elif taken is not None:
            self._take(taken)

    def on_not_saved(self) -> None:
        """Stays in the same role, because the promise could not be saved on a full disk. The promise of an epoch that
        is followed remains due.
        """
        self._next = None

    def _promise_then(self, state: ElectionState, taken: Candidate | Leader | VoterKey) -> None:
        """Promises `state`; the role or vote takes effect when that is on disk."""
        assert self._next is None, "at most one promise in an event"
        self._draft.promise(state, is_binding=True)
        self._next = taken

    def _promise_epoch(self, state: ElectionState) -> None:
        """Promises an epoch and its leader, which take effect even if they cannot be saved."""
        assert self._next is None, "at most one promise in an event"
        self._draft.promise(state, is_binding=False)
        self._unsaved_epoch = state

    def _take(self, role: Role) -> None:
        assert self._next is None, "a promise is saved before anything else happens"
        assert can_follow(self.role, role, is_alone=self.is_alone), f"{role} cannot follow {self.role}"
        before, self.role = self.role, role
        self._on_role(before, role)


def _state(epoch: int, leader_id: int, voted: VoterKey | None) -> ElectionState:
    if voted is None:
        return ElectionState(epoch, leader_id)
    return ElectionState(epoch, leader_id, voted.node_id, voted.directory_id)
