"""Elections of a leader: timeouts, pre-votes, votes, and the responses to other candidates (KIP-595, KIP-996).

    a voter receives nothing from a leader for its timeout   -> requests pre-votes, in its current epoch
    its connection to the leader is refused                  -> the same, soon: no process listens there
    a majority would vote for it                             -> next epoch, its own vote on disk, requests votes
    a majority votes for it                                  -> leads
    it cannot win any more, or its time is up                -> backs off for a random time

Voters that find the leader's port closed, or had the same last contact with it, start their elections in the order of
their ids, `_TURN_MS` apart: otherwise two of three would often start at the same time, and each would vote for itself.
An election is also lost when one voter has refused and no process listens at the ports of the others; the candidate
then does not wait for its timeout.

Invariants
- A vote is granted only to a candidate whose log is at least as up to date as this node's, and is on disk before the
  response is sent: response and promise are in one `Ready`.
- A response counts only for the election in which the vote was requested.
"""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from barnabas.protocol.messages.vote import VoteRequest, VoteResponse
from barnabas.raft.core import Core
from barnabas.raft.messages import epoch_answer, is_of_new_cluster, only_partition, vote_request
from barnabas.raft.peers import Alarm
from barnabas.raft.quorum import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey

#: The first backoff of a candidate is below this; each lost election doubles it.
_BACKOFF_BASE_MS = 50
#: The delay between two voters that find the leader gone: longer than most elections with two rounds and two writes.
_TURN_MS = 40
#: The delay before the second attempt to replace a leader that is gone; each failed attempt doubles the delay.
_AGAIN_BASE_MS = 20


class Elections:
    """The elections on this node: its timer, its candidacies, and its votes for others."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._alarm = Alarm(core.host.clock, core.timers, lambda: core.persisting(self._on_time, self._on_time_again))
        #: The number of elections lost since there was a leader.
        self._lost = 0
        self._is_backing_off = False
        #: The epoch whose leader has resigned or no longer listens; -1 if there is none.
        self._ended_epoch = -1
        #: The number of failed pre-votes in `_ended_epoch`.
        self._attempts = 0
        #: Voters of the current election at whose address no process listens.
        self._gone: set[int] = set()

    # Timeouts.

    def on_role(self, role: Role) -> None:
        core = self._core
        self._is_backing_off = False
        self._gone = set()
        if isinstance(role, Leader | Follower):
            self._lost = 0
            if role.epoch != self._ended_epoch:
                self._ended_epoch = -1
        if isinstance(role, Leader):
            self._alarm.cancel()
        elif isinstance(role, Follower):
            self._wait_for_leader(role)
        elif isinstance(role, Unattached) and not core.can_be_candidate:
            self._alarm.cancel()
        elif isinstance(role, Resigned) and not core.can_be_candidate:
            # This node was removed from the voters: no voter needs its vote, and its broker needs the new leader soon.
            self.start_election_soon()
        elif isinstance(role, Unattached) and self._ended_epoch >= 0:
            # Another voter has started a new epoch, which has no leader either.
            self._epoch_ended(_TURN_MS + self._turn_ms(role.leader_id))
        else:
            self._alarm.set(core.election_timeout_ms())
        if isinstance(role, Prospective | Candidate):
            self._count()
            if core.quorum.role is role:
                for voter in core.quorum.voters:
                    self._request_vote(role, voter)

    def start_election_soon(self) -> None:
        """Starts an election soon, when no leader may exist. A pre-vote changes nothing, so it disturbs no leader."""
        self._alarm.set(1 + self._core.host.random.below(max(self._core.times.election_timeout_ms // 10, 1)))

    def on_leader_response(self) -> None:
        """Restarts the fetch timeout, because the leader has answered a fetch."""
        role = self._core.quorum.role
        assert isinstance(role, Follower)
        self._ended_epoch = -1
        self._wait_for_leader(role)

    def _wait_for_leader(self, role: Follower) -> None:
        """Starts the fetch timeout, plus this voter's turn.

        A leader answers all its followers at the same moment, when it appends; with equal timeouts they would all start
        elections at the same time.
        """
        turn_ms = self._turn_ms(role.leader_id) if self._core.can_be_candidate else 0
        self._alarm.set(self._core.times.fetch_timeout_ms + turn_ms)

    def leader_is_gone(self) -> None:
        """Starts an election soon: the leader's port is closed, or the leader has reported that it no longer leads.

        There is no need to wait for a timeout, and no reason to refuse other candidates.
        """
        core = self._core
        role = core.quorum.role
        if not isinstance(role, Follower) or not core.can_be_candidate:
            return
        role.has_fetched = False
        if self._ended_epoch != role.epoch:
            self._epoch_ended(self._turn_ms(role.leader_id) + core.host.random.below(_TURN_MS // 4))

    def _epoch_ended(self, delay_ms: int) -> None:
        """Records that this epoch's leader is gone; this voter starts an election after `delay_ms`."""
        if self._ended_epoch < 0:
            self._attempts = 0
        self._ended_epoch = self._core.quorum.epoch
        self._alarm.set(min(delay_ms, self._core.times.election_timeout_ms))

    def _turn_ms(self, gone_id: int) -> int:
        """Returns this voter's delay before it starts an election to replace a leader that is gone."""
        own_id = self._core.own.node_id
        return _TURN_MS * sum(voter_id < own_id for voter_id in self._core.quorum.voters.ids if voter_id != gone_id)

    def stop(self) -> None:
        self._alarm.cancel()

    def _on_time(self) -> None:
        core = self._core
        quorum = core.quorum
        role = quorum.role
        if core.is_stopped:
            return
        if isinstance(role, Resigned):
            # A new epoch, because in this one the others know this node as the leader.
            quorum.become_unattached(role.epoch + 1)
        elif not core.can_be_candidate:
            _let_others_stand(role)
        elif quorum.is_alone:
            quorum.become_candidate()
        elif not core.log_health.is_writable and not isinstance(role, Prospective):
            # This node could not lead if it won. The others start elections, and can have its vote.
            core.log_health.reports.inform(
                "does not stand",
                f"node {core.own.node_id} does not stand for election: its metadata log cannot be written",
            )
            _let_others_stand(role)
            self._alarm.set(core.election_timeout_ms())
        elif isinstance(role, Unattached | Follower):
            quorum.become_prospective()
        elif isinstance(role, Prospective):
            self._end_pre_vote(role)
        elif self._is_backing_off:
            quorum.become_prospective()
        else:
            self._back_off()

    def on_not_saved(self) -> None:
        """Retries later: the promise of a role could not be saved on a full disk."""
        if isinstance(self._core.quorum.role, Prospective | Candidate):
            self._on_time_again()

    def _on_time_again(self) -> None:
        self._alarm.set(self._core.election_timeout_ms())

    def _end_pre_vote(self, role: Prospective) -> None:
        """Ends a failed pre-vote, as others follow a leader or cannot be reached: restores the previous role."""
        quorum = self._core.quorum
        if role.leader_id >= 0 and role.leader_endpoints:
            quorum.become_follower(role.epoch, role.leader_id, role.leader_endpoints)
        else:
            quorum.become_unattached(role.epoch)
        if self._ended_epoch == quorum.epoch:
            # The others may not know it yet: they are requested again soon, and then with growing delays.
            delay_ms = _AGAIN_BASE_MS << min(self._attempts, 10)
            self._attempts += 1
            self._alarm.set(min(delay_ms, self._core.times.election_timeout_ms))

    def _back_off(self) -> None:
        times = self._core.times
        self._lost += 1
        bound_ms = min(_BACKOFF_BASE_MS << min(self._lost, 16), times.election_backoff_max_ms)
        self._is_backing_off = True
        self._alarm.set(1 + self._core.host.random.below(max(bound_ms, 1)))

    # Requests.

    def _request_vote(self, role: Prospective | Candidate, voter: Voter) -> None:
        core = self._core
        node_id = voter.key.node_id
        if core.is_stopped or core.quorum.role is not role or node_id in role.votes.granted | role.votes.rejected:
            return
        address = core.address_of(node_id)
        if address is None:
            return
        request = vote_request(
            core.cluster_id,
            core.own,
            voter.key,
            epoch=role.epoch,
            last=core.last,
            pre_vote=isinstance(role, Prospective),
            is_of_new_cluster=core.is_of_new_cluster,
        )
        timeout_ms = min(core.times.request_timeout_ms, max(core.times.election_timeout_ms, 1))
        core.send(
            address,
            request,
            lambda response: core.persisting(lambda: self._on_vote(role, voter, response)),
            timeout_ms=timeout_ms,
        )

    def _on_vote(self, role: Prospective | Candidate, voter: Voter, response: Message | None) -> None:
        core = self._core
        if core.is_stopped:
            return
        if not isinstance(response, VoteResponse) or response.error_code:
            if response is not None:
                core.report_refusal(voter.key.node_id, response)
            elif core.quorum.role is role and self._is_refused(voter) and not self._is_backing_off:
                self._gone.add(voter.key.node_id)
                self._count()
            core.timers.call_later(core.times.retry_backoff_ms, lambda: self._request_vote(role, voter))
            return
        answer = only_partition(response)
        if answer is None:
            return
        endpoints = core.leader_endpoints_in(response, answer.leader_id)
        is_current = core.learn_from(answer.error_code, answer.leader_epoch, answer.leader_id, endpoints)
        if not is_current or core.quorum.role is not role or self._is_backing_off:
            return
        if answer.error_code:
            core.timers.call_later(core.times.retry_backoff_ms, lambda: self._request_vote(role, voter))
            return
        self._gone.discard(voter.key.node_id)
        role.votes.note(voter.key.node_id, granted=answer.vote_granted)
        self._count()

    def _is_refused(self, voter: Voter) -> bool:
        address = self._core.address_of(voter.key.node_id)
        return address is not None and self._core.is_refused(address)

    def _count(self) -> None:
        quorum = self._core.quorum
        role = quorum.role
        assert isinstance(role, Prospective | Candidate)
        if role.votes.is_won(quorum.voters):
            if isinstance(role, Prospective):
                quorum.become_candidate()
            else:
                quorum.become_leader(self._core.log.end_offset)
        elif role.votes.is_lost(quorum.voters, self._gone):
            if isinstance(role, Prospective):
                self._end_pre_vote(role)
            else:
                self._back_off()

    # Responses.

    def _answer(self, cls: type[Message], code: ErrorCode, listener: str, **fields: object) -> Message:
        core = self._core
        leader_id = core.quorum.leader_id
        address = core.leader_address(listener)
        answer: Message = epoch_answer(
            cls, code, leader_id=leader_id, epoch=core.quorum.epoch, address=address, **fields
        )
        return answer

    def _check(self, node_id: int, epoch: int) -> ErrorCode:
        if epoch < self._core.quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE

    def _is_meant(self, node_id: int, directory_id: bytes) -> bool:
        """Returns whether a request is for this replica. Ids that the peer does not send or know always match."""
        own = self._core.own
        return node_id < 0 or (node_id == own.node_id and directory_id in (bytes(16), own.directory_id))

    def on_vote(self, request: VoteRequest, listener: str) -> Message:
        core = self._core
        if core.is_other_cluster(request.cluster_id):
            return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        requested = only_partition(request)
        if requested is None:
            return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        above = requested.last_offset_epoch > requested.replica_epoch
        if requested.last_offset < 0 or requested.last_offset_epoch < 0 or above:
            return self._answer(VoteResponse, ErrorCode.INVALID_REQUEST, listener)
        if not requested.pre_vote and requested.last_offset_epoch == requested.replica_epoch:
            return self._answer(VoteResponse, ErrorCode.INVALID_REQUEST, listener)
        code = self._check(requested.replica_id, requested.replica_epoch)
        if code:
            return self._answer(VoteResponse, code, listener)
        quorum = core.quorum
        if requested.replica_epoch > quorum.epoch:
            quorum.become_unattached(requested.replica_epoch)
        if not self._is_meant(request.voter_id, requested.voter_directory_id):
            return self._answer(VoteResponse, ErrorCode.INVALID_VOTER_KEY, listener)
        candidate = VoterKey(requested.replica_id, requested.replica_directory_id)
        up_to_date = (requested.last_offset_epoch, requested.last_offset) >= core.last
        granted = quorum.would_grant(candidate, up_to_date=up_to_date, pre_vote=requested.pre_vote)
        granted = granted and core.may_vote_for(
            candidate.node_id, requested.last_offset, is_of_new_cluster=is_of_new_cluster(request)
        )
        if granted and not requested.pre_vote:
            quorum.vote_for(candidate)
            if not isinstance(quorum.role, Follower):
                # The candidate gets this time to win.
                self._alarm.set(core.election_timeout_ms())
        elif granted and isinstance(quorum.role, Follower) and self._ended_epoch == quorum.epoch:
            self._alarm.set(_TURN_MS + self._turn_ms(quorum.leader_id))
        return self._answer(VoteResponse, ErrorCode.NONE, listener, vote_granted=granted)

    def on_begin(self, request: BeginQuorumEpochRequest, listener: str) -> Message:
        core = self._core
        if core.is_other_cluster(request.cluster_id):
            return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        requested = only_partition(request)
        if requested is None:
            return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        code = self._check(requested.leader_id, requested.leader_epoch)
        if not code:
            endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.leader_endpoints)
            core.learn(requested.leader_epoch, requested.leader_id, endpoints, from_leader=True)
            if not self._is_meant(request.voter_id, requested.voter_directory_id):
                code = ErrorCode.INVALID_VOTER_KEY
        return self._answer(BeginQuorumEpochResponse, code, listener)

    def on_end(self, request: EndQuorumEpochRequest, listener: str) -> Message:
        core = self._core
        if core.is_other_cluster(request.cluster_id):
            return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        requested = only_partition(request)
        if requested is None:
            return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        code = self._check(requested.leader_id, requested.leader_epoch)
        if not code:
            endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.leader_endpoints)
            core.learn(requested.leader_epoch, requested.leader_id, endpoints)
            role = core.quorum.role
            if isinstance(role, Follower) and role.leader_id == requested.leader_id:
                role.has_fetched = False
                named = [VoterKey(c.candidate_id, c.candidate_directory_id) for c in requested.preferred_candidates]
                named = named or [VoterKey(node_id) for node_id in requested.preferred_successors]
                self._epoch_ended(self._succession_ms(named))
        return self._answer(EndQuorumEpochResponse, code, listener)

    def _succession_ms(self, successors: list[VoterKey]) -> int:
        """Returns the delay before this voter's election: 0 for the first successor, growing for the others.

        The first successor has the most records, and so is likely to win.
        """
        own, max_ms = self._core.own, self._core.times.election_backoff_max_ms
        for place, key in enumerate(successors):
            if key.node_id == own.node_id and key.directory_id in (bytes(16), own.directory_id):
                return 0 if place == 0 else min((max_ms >> (len(successors) - 1)) << (place - 1), max_ms)
        return max_ms


def _let_others_stand(role: Role) -> None:
    """Lets a node grant pre-votes after the fetch timeout, although it does not stand for election itself. Its vote can
    be needed: a voter that was just added may not have the record of that yet.
    """
    if isinstance(role, Follower):
        role.has_fetched = False
