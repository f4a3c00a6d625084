"""The gatekeeper of roles, without disk or log."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.records_raft import VotersRecord
from barnabas.raft.quorum import Candidate, Leader, QuorumState, Resigned, Unattached
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet, voters_from_record

DIRECTORY = b"d" * 16
OWN = VoterKey(1, DIRECTORY)


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(VoterKey(i, DIRECTORY), (VoterEndpoint("C", "h", 9000 + i),)) for i in ids))


def quorum(*ids: int, stored: ElectionState | None = None) -> tuple[QuorumState, list[ElectionState]]:
    written: list[ElectionState] = []
    return QuorumState(OWN, voter_set(*ids), stored, written.append), written


def test_a_new_voter_elects_itself_in_epoch_one() -> None:
    state, written = quorum(1)
    assert state.role == Unattached(0)
    assert state.become_candidate() == Candidate(1, (OWN,))
    assert state.leader_id == -1
    leader = state.become_leader(7)
    assert (leader.epoch, leader.epoch_start_offset) == (1, 7)
    assert state.leader_id == 1
    assert written == [ElectionState(1, leader_id=1)]


def test_who_led_an_epoch_does_not_lead_it_again_after_a_restart() -> None:
    state, _ = quorum(1, stored=ElectionState(4, leader_id=1))
    assert state.role == Resigned(4)
    assert state.become_candidate().epoch == 5


def test_a_vote_is_remembered() -> None:
    state, _ = quorum(1, 2, stored=ElectionState(4, voted_id=2, voted_directory_id=DIRECTORY))
    assert state.role == Unattached(4, VoterKey(2, DIRECTORY))


def test_transitions_that_must_not_be() -> None:
    state, _ = quorum(1)
    with pytest.raises(AssertionError, match="only a candidate wins"):
        state.become_leader(0)
    with pytest.raises(AssertionError, match="only a leader resigns"):
        state.become_resigned()
    state.become_candidate()
    state.become_leader(0)
    with pytest.raises(AssertionError, match="a leader resigns before"):
        state.become_candidate()
    state.become_resigned()
    assert state.become_candidate().epoch == 2


def test_one_vote_is_no_majority_of_three() -> None:
    state, written = quorum(1, 2, 3)
    state.become_candidate()
    with pytest.raises(AssertionError, match="a majority elects"):
        state.become_leader(0)
    assert written == []


def test_an_observer_does_not_stand_for_election() -> None:
    state, _ = quorum(2, 3)
    with pytest.raises(AssertionError, match="only a voter"):
        state.become_candidate()


def test_the_high_watermark_is_what_a_majority_has_of_this_epoch() -> None:
    voters = voter_set(1, 2, 3)
    leader = Leader(epoch=3, epoch_start_offset=10, granting=())
    assert not leader.update(1, 12, voters)
    assert not leader.update(2, 10, voters), "10 is the end of what earlier epochs wrote"
    assert leader.high_watermark == 0
    assert leader.update(2, 11, voters)
    assert leader.high_watermark == 11
    assert not leader.update(3, 11, voters)
    assert leader.update(3, 15, voters)
    assert leader.high_watermark == 12
    with pytest.raises(AssertionError):
        leader.update(3, 14, voters)


def test_a_voter_is_a_node_and_a_directory() -> None:
    voters = voter_set(1)
    assert voters.is_only(OWN)
    assert not voters.is_only(VoterKey(1, b"e" * 16))
    static = VoterSet((Voter(VoterKey(1), ()),))
    assert static.is_only(OWN)
    assert not voter_set(1, 2).is_only(OWN)
    assert [voter_set(*range(n)).majority for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_voters_survive_their_record() -> None:
    voters = voter_set(1, 2, 3)
    record = voters.to_record()
    assert isinstance(record, VotersRecord)
    assert voters_from_record(record) == voters
