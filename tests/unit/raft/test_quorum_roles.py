"""The state of roles and the leader's view of its followers, without disk or log."""

from __future__ import annotations

import pytest
from tests.support.kept_promises import KeptPromises

from barnabas.protocol.messages.records_raft import KRaftVersionRecord, VotersRecord
from barnabas.raft.progress import Progress
from barnabas.raft.quorum import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Votes
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.voter_history import NOT_IN_LOG, VoterHistory
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet, voters_from_record

DIRECTORY = b"d" * 16
OWN = VoterKey(1, DIRECTORY)
OTHER = VoterKey(2, DIRECTORY)
THIRD = VoterKey(3, DIRECTORY)
ENDPOINTS = (VoterEndpoint("C", "h", 9002),)


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(VoterKey(i, DIRECTORY), (VoterEndpoint("C", "h", 9000 + i),)) for i in ids))


def quorum(*ids: int, stored: ElectionState | None = None) -> tuple[KeptPromises, list[ElectionState]]:
    written: list[ElectionState] = []
    return KeptPromises(OWN, VoterHistory(voter_set(*ids), 1), stored, written), written


def elected(*ids: int) -> tuple[KeptPromises, list[ElectionState]]:
    """Returns a candidate of epoch 1 among several voters."""
    state, written = quorum(*ids)
    state.become_prospective()
    assert isinstance(state.role, Prospective)
    state.role.votes.granted |= set(ids)
    state.become_candidate()
    return state, written


def test_a_voter_that_is_alone_elects_itself_with_one_write() -> None:
    state, written = quorum(1)
    assert state.role == Unattached(0)
    state.become_candidate()
    assert state.role == Candidate(1, Votes({1}))
    assert state.leader_id == -1
    state.become_leader(7)
    leader = state.role
    assert isinstance(leader, Leader)
    assert (leader.epoch, leader.epoch_start_offset) == (1, 7)
    assert state.leader_id == 1
    assert written == [ElectionState(1, leader_id=1)]


def test_a_candidate_has_its_vote_on_disk_before_it_asks() -> None:
    state, written = elected(1, 2, 3)
    assert state.role == Candidate(1, Votes({1}))
    assert written == [ElectionState(1, voted_id=1, voted_directory_id=DIRECTORY)]


def test_asking_for_pre_votes_changes_nothing_on_disk() -> None:
    state, written = quorum(1, 2, 3)
    state.become_prospective()
    assert state.epoch == 0
    assert written == []


def test_who_led_an_epoch_does_not_lead_it_again_after_a_restart() -> None:
    state, _ = quorum(1, stored=ElectionState(4, leader_id=1))
    assert state.role == Resigned(4)
    state.become_candidate()
    assert state.epoch == 5


def test_a_vote_is_remembered() -> None:
    state, _ = quorum(1, 2, 3, stored=ElectionState(4, voted_id=2, voted_directory_id=DIRECTORY))
    assert state.role == Unattached(4, OTHER)
    assert state.would_grant(OTHER, up_to_date=False, pre_vote=False), "the same vote again"
    assert not state.would_grant(THIRD, up_to_date=True, pre_vote=False)
    assert not state.would_grant(VoterKey(2, b"e" * 16), up_to_date=True, pre_vote=False), "another directory"


def test_a_vote_is_on_disk_when_it_is_given() -> None:
    """Guard G16."""
    state, written = quorum(1, 2, 3)
    state.become_unattached(3)
    state.vote_for(OTHER)
    state.vote_for(OTHER)
    assert written == [ElectionState(3), ElectionState(3, voted_id=2, voted_directory_id=DIRECTORY)]
    with pytest.raises(AssertionError, match="one vote"):
        state.vote_for(THIRD)


def test_who_follows_grants_pre_votes_only_while_the_leader_has_not_answered() -> None:
    state, written = quorum(1, 2, 3)
    state.become_follower(5, 2, ENDPOINTS)
    assert written == [ElectionState(5, leader_id=2)]
    assert state.would_grant(THIRD, up_to_date=True, pre_vote=True)
    assert not state.would_grant(THIRD, up_to_date=False, pre_vote=True)
    assert not state.would_grant(THIRD, up_to_date=True, pre_vote=False), "the epoch has its leader"
    assert isinstance(state.role, Follower)
    state.role.has_fetched = True
    assert not state.would_grant(THIRD, up_to_date=True, pre_vote=True)


def test_a_vote_outlives_the_leader_that_was_elected_without_it() -> None:
    state, written = elected(1, 2, 3)
    state.become_follower(1, 2, ENDPOINTS)
    assert state.role == Follower(1, 2, ENDPOINTS, OWN)
    assert written[-1] == ElectionState(1, leader_id=2, voted_id=1, voted_directory_id=DIRECTORY)


def test_a_leader_grants_nothing() -> None:
    state, _ = elected(1, 2, 3)
    assert isinstance(state.role, Candidate)
    assert not state.would_grant(OTHER, up_to_date=True, pre_vote=False)
    assert state.would_grant(OTHER, up_to_date=True, pre_vote=True)
    state.role.votes.note(2, granted=True)
    state.become_leader(0)
    assert not state.would_grant(OTHER, up_to_date=True, pre_vote=True)
    state.become_resigned()
    assert state.leader_id == 1, "everybody is told so until the next epoch"
    state.become_unattached(2)
    assert state.leader_id == -1


def test_transitions_that_must_not_be() -> None:
    state, written = quorum(1, 2, 3)
    for forbidden, text in (
        (lambda: state.become_leader(0), "only a candidate wins"),
        (state.become_resigned, "only a leader resigns"),
        (state.become_candidate, "has won its pre-votes"),
        (lambda: state.become_unattached(0), "only a failed pre-vote"),
        (lambda: state.become_follower(1, 1, ()), "cannot be followed"),
    ):
        with pytest.raises(AssertionError, match=text):
            forbidden()
    state.become_prospective()
    with pytest.raises(AssertionError, match="a majority granted the pre-vote"):
        state.become_candidate()
    assert written == []
    state.become_follower(3, 2, ENDPOINTS)
    with pytest.raises(AssertionError, match="two leaders"):
        state.become_follower(3, 3, ENDPOINTS)
    with pytest.raises(AssertionError, match="an epoch never decreases"):
        state.become_follower(2, 3, ENDPOINTS)


def test_one_vote_is_no_majority_of_three() -> None:
    state, _ = elected(1, 2, 3)
    with pytest.raises(AssertionError, match="a majority elects"):
        state.become_leader(0)


def test_an_observer_does_not_stand_for_election() -> None:
    state, _ = quorum(2, 3)
    with pytest.raises(AssertionError, match="only a voter"):
        state.become_prospective()


def test_votes_are_won_and_lost_by_majorities() -> None:
    voters = voter_set(1, 2, 3, 4)
    votes = Votes({1})
    votes.note(2, granted=True)
    votes.note(2, granted=False)
    assert not votes.is_won(voters)
    votes.note(3, granted=False)
    assert not votes.is_lost(voters)
    votes.note(4, granted=False)
    assert votes.is_lost(voters), "two of four cannot be three"
    assert not votes.is_won(voter_set(1, 2, 3, 4, 5))
    assert votes.is_won(voter_set(1, 2, 3))


# The leader's book.


def test_the_high_watermark_is_what_a_majority_has_of_this_epoch() -> None:
    """Guard G16."""
    progress = Progress(OWN, voter_set(1, 2, 3), 10)
    assert not progress.on_own_flush(12, 0)
    assert not progress.on_fetch(OTHER, 10, 12, 0), "10 is the end of what earlier epochs wrote"
    assert progress.high_watermark == -1
    assert progress.on_fetch(OTHER, 11, 12, 1)
    assert progress.high_watermark == 11
    assert not progress.on_fetch(THIRD, 11, 12, 1)
    assert progress.on_fetch(THIRD, 12, 12, 1)
    assert progress.high_watermark == 12
    assert not progress.on_fetch(THIRD, 3, 12, 2), "it never goes back"
    with pytest.raises(AssertionError, match="flushed end never decreases"):
        progress.on_own_flush(11, 3)


def test_another_directory_is_another_replica() -> None:
    progress = Progress(OWN, voter_set(1, 2, 3), 0)
    progress.on_own_flush(5, 0)
    assert not progress.on_fetch(VoterKey(2, b"e" * 16), 5, 5, 0)
    assert not progress.note_fetch(VoterKey(2, b"e" * 16))
    assert [state.key for state in progress.observers(0)] == [VoterKey(2, b"e" * 16)]
    assert progress.on_fetch(OTHER, 5, 5, 0)


def test_two_processes_with_one_node_id_are_seen_by_their_directories() -> None:
    """Voters of a static quorum are known by their ids only, so both count for one."""
    voters = VoterSet(tuple(Voter(VoterKey(number), ()) for number in (1, 2, 3)))
    progress = Progress(OWN, voters, 0)
    one, other = VoterKey(2, b"e" * 16), VoterKey(2, b"f" * 16)
    for key in (one, one, other, one, other):
        assert progress.duplicate_ids() == [], "a disk was replaced, and a late request came"
        progress.on_fetch(key, 5, 5, 0)
    assert progress.duplicate_ids() == [2]


def test_a_leader_that_is_no_voter_does_not_count_itself() -> None:
    progress = Progress(OWN, voter_set(1, 2, 3), 0)
    progress.set_voters(voter_set(2, 3))
    assert not progress.on_own_flush(9, 0)
    assert not progress.on_fetch(OTHER, 9, 9, 0)
    assert progress.on_fetch(THIRD, 9, 9, 0)
    assert not progress.note_fetch(OTHER)
    assert progress.note_fetch(THIRD), "both of the two that are left"


def test_what_is_known_of_a_replica_stays_known_when_it_becomes_a_voter() -> None:
    progress = Progress(OWN, voter_set(1), 0)
    progress.on_own_flush(4, 0)
    progress.on_fetch(OTHER, 4, 4, 7)
    assert progress.is_caught_up(OTHER, 8)
    assert not progress.is_caught_up(THIRD, 8)
    progress.set_voters(voter_set(1, 2))
    assert progress.on_own_flush(5, 9) is False
    assert progress.on_fetch(OTHER, 5, 5, 9)
    assert progress.observers(9) == []
    progress.set_voters(voter_set(1))
    assert [state.key for state in progress.observers(9)] == [OTHER]
    assert progress.observers(300_010) == [], "forgotten after five minutes"


def test_a_replica_that_keeps_up_with_what_was_there_at_its_last_fetch_is_caught_up() -> None:
    progress = Progress(OWN, voter_set(1, 2), 0)
    progress.on_fetch(OTHER, 0, 10, 100)
    state = progress.state_of(OTHER)
    assert state is not None
    assert state.last_caught_up_ms == -1
    progress.on_fetch(OTHER, 10, 20, 200)
    assert state.last_caught_up_ms == 100
    progress.on_fetch(OTHER, 20, 20, 300)
    assert state.last_caught_up_ms == 300


# Voters.


def test_a_voter_is_a_node_and_a_directory() -> None:
    """Guard G18."""
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


def test_the_history_of_voters_follows_the_log() -> None:
    history = VoterHistory(voter_set(1), 0)
    assert history.voters_offset == NOT_IN_LOG
    assert history.note(4, KRaftVersionRecord(kraft_version=1))
    assert history.note(5, voter_set(1, 2).to_record())
    assert history.note(9, voter_set(1, 2, 3).to_record())
    assert not history.note(10, None)
    assert history.voters == voter_set(1, 2, 3)
    assert history.at(5) == (voter_set(1), 1)
    assert history.at(6) == (voter_set(1, 2), 1)
    history.truncate(9)
    assert history.voters == voter_set(1, 2)
    history.truncate(3)
    assert (history.voters, history.kraft_version, history.voters_offset) == (voter_set(1), 0, NOT_IN_LOG)
    history.start_at_snapshot(20, voter_set(2, 3), 1)
    assert (history.voters, history.kraft_version, history.voters_offset) == (voter_set(2, 3), 1, 19)
