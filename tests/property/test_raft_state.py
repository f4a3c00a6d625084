"""The pure parts of the quorum against models that are too simple to be wrong."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.kept_promises import KeptPromises

from barnabas.raft.progress import Progress
from barnabas.raft.quorum import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas.raft.quorum_state import ElectionState, decode_state, encode_state
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet, voters_from_record

DIRECTORY = b"d" * 16
OWN = VoterKey(1, DIRECTORY)
EVENTS = st.one_of(
    st.tuples(st.just("vote"), st.integers(0, 6), st.integers(2, 4), st.booleans(), st.booleans()),
    st.tuples(st.just("leader"), st.integers(0, 6), st.integers(2, 4)),
    st.tuples(st.just("timeout")),
    st.tuples(st.just("granted"), st.integers(2, 4)),
    st.tuples(st.just("resign")),
    st.tuples(st.just("restart")),
)


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(VoterKey(i, DIRECTORY), (VoterEndpoint("C", "h", i),)) for i in sorted(ids)))


class Gatekeeper:
    """A gatekeeper of roles moved by events as the product moves it, and what it must never do."""

    def __init__(self) -> None:
        self.disk: list[ElectionState] = []
        self.told_votes: dict[int, VoterKey] = {}
        self.led: set[int] = set()
        self.epoch = 0
        self.start()

    def start(self) -> None:
        stored = self.disk[-1] if self.disk else None
        self.state = KeptPromises(OWN, VoterHistory(voter_set(1, 2, 3, 4), 1), stored, self.disk)

    def on_restart(self) -> None:
        self.start()

    def on_vote(self, epoch: int, candidate: int, up_to_date: bool, pre_vote: bool) -> None:
        state, key = self.state, VoterKey(candidate, DIRECTORY)
        if epoch < state.epoch:
            return
        if epoch > state.epoch:
            state.become_unattached(epoch)
        writes = len(self.disk)
        granted = state.would_grant(key, up_to_date=up_to_date, pre_vote=pre_vote)
        if pre_vote:
            assert len(self.disk) == writes
        elif granted:
            state.vote_for(key)
            self.tell_vote(state.epoch, key)
            assert self.disk[-1].epoch == state.epoch
            assert self.disk[-1].voted_id == candidate, "on disk before it is told"

    def tell_vote(self, epoch: int, candidate: VoterKey) -> None:
        assert self.told_votes.setdefault(epoch, candidate) == candidate, "two votes in one epoch"

    def on_leader(self, epoch: int, leader_id: int) -> None:
        state = self.state
        if epoch < state.epoch or (isinstance(state.role, Leader) and epoch == state.epoch):
            return
        if epoch == state.epoch and state.leader_id not in (-1, leader_id):
            return
        state.become_follower(epoch, leader_id, (VoterEndpoint("C", "h", leader_id),))
        assert self.disk[-1].epoch == epoch
        assert self.disk[-1].leader_id == leader_id

    def on_timeout(self) -> None:
        state = self.state
        if isinstance(state.role, Unattached | Follower | Candidate):
            state.become_prospective()
        elif isinstance(state.role, Resigned):
            state.become_unattached(state.epoch + 1)

    def on_granted(self, node_id: int) -> None:
        state = self.state
        role = state.role
        if not isinstance(role, Prospective | Candidate):
            return
        role.votes.note(node_id, granted=True)
        if not role.votes.is_won(state.voters):
            return
        if isinstance(role, Prospective):
            state.become_candidate()
            self.tell_vote(state.epoch, OWN)
        else:
            state.become_leader(0)
            assert state.epoch not in self.led, "an epoch is led once, whatever was forgotten in between"
            self.led.add(state.epoch)

    def on_resign(self) -> None:
        if isinstance(self.state.role, Leader):
            self.state.become_resigned()

    def check(self) -> None:
        assert self.state.epoch >= self.epoch, "epochs go forward, even across restarts"
        self.epoch = self.state.epoch
        if isinstance(self.state.role, Leader | Candidate):
            assert self.told_votes.get(self.state.epoch) == OWN


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_roles_keep_their_promises_over_any_events_and_restarts(events: list[tuple[object, ...]]) -> None:
    gatekeeper = Gatekeeper()
    for name, *arguments in events:
        getattr(gatekeeper, f"on_{name}")(*arguments)
        gatekeeper.check()


@settings(max_examples=200, deadline=None)
@given(
    voters=st.sets(st.integers(1, 6), min_size=1, max_size=5),
    start=st.integers(0, 20),
    reports=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40)), max_size=40),
)
def test_the_high_watermark_is_the_highest_offset_that_a_majority_has_had(
    voters: set[int], start: int, reports: list[tuple[int, int]]
) -> None:
    progress = Progress(OWN, voter_set(*voters), start)
    known: dict[int, int] = {}
    expected = -1
    for node_id, offset in reports:
        if node_id == 1:
            offset = max(offset, known.get(1, -1))
            progress.on_own_flush(offset, 0)
        else:
            progress.on_fetch(VoterKey(node_id, DIRECTORY), offset, 40, 0)
        known[node_id] = offset
        for candidate in range(start + 1, 41):
            if sum(known.get(voter, -1) >= candidate for voter in voters) * 2 > len(voters):
                expected = max(expected, candidate)
        if node_id in voters:
            assert progress.high_watermark == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(1, 6), min_size=1)), max_size=15), st.integers(0, 40))
def test_the_history_of_voters_is_that_of_the_log(steps: list[tuple[int, set[int]]], cut: int) -> None:
    history = VoterHistory(voter_set(1), 1)
    log = [(-1, voter_set(1))]
    offset = 0
    for gap, ids in steps:
        offset += gap
        history.note(offset, voter_set(*ids).to_record())
        log.append((offset, voter_set(*ids)))
    assert history.at(cut)[0] == [voters for at, voters in log if at < cut][-1]
    history.truncate(cut)
    left = [voters for at, voters in log if at < cut]
    assert history.voters == left[-1]
    assert history.voters_before == left[-2 if len(left) > 1 else -1]


@given(
    st.builds(
        ElectionState,
        st.integers(0, 1 << 30),
        st.integers(-1, 1000),
        st.integers(-1, 1000),
        st.binary(min_size=16, max_size=16),
    )
)
def test_election_states_survive_their_file(state: ElectionState) -> None:
    assert decode_state(encode_state(state, kraft_version=1, voter_ids=[]), "q") == state
    old = decode_state(encode_state(state, kraft_version=0, voter_ids=[3, 1]), "q")
    assert (old.epoch, old.leader_id, old.voted_id, old.voter_ids) == (
        state.epoch,
        state.leader_id,
        state.voted_id,
        (3, 1),
    )


@given(st.sets(st.integers(0, 1000), min_size=1, max_size=7), st.sets(st.integers(0, 1000), min_size=1, max_size=7))
def test_voters_are_sorted_and_replaced_by_their_ids(ids: set[int], more: set[int]) -> None:
    voters = voter_set(*ids)
    for node_id in sorted(more):
        voters = voters.with_voter(Voter(VoterKey(node_id, b"n" * 16), ()))
    assert voters.ids == tuple(sorted(ids | more))
    assert voters_from_record(voters.to_record()) == voters
    for node_id in more:
        assert voters.find(VoterKey(node_id, DIRECTORY)) is None
        voters = voters.without(VoterKey(node_id, b"n" * 16))
    assert voters.ids == tuple(sorted(ids - more))
