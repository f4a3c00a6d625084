"""Elections of a calm quorum: votes, epochs that begin and end, and leaders whose process dies."""

from __future__ import annotations

import pytest
from tests.support.calm_quorum import STRANGER, CalmWorld, partition_of

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.raft.elections import Elections
from barnabas.raft.messages import begin_request, end_request, vote_request
from barnabas.simulation.worlds.quorum_places import CLUSTER_ID, Place


@pytest.fixture
def calm() -> CalmWorld:
    return CalmWorld()


def vote(
    calm: CalmWorld, voter: Place, *, epoch: int, pre_vote: bool = False, last: tuple[int, int] = (0, 0)
) -> VoteRequest:
    return vote_request(CLUSTER_ID, STRANGER, voter.key, epoch=epoch, last=last, pre_vote=pre_vote)


def test_votes_that_are_refused(calm: CalmWorld) -> None:
    voter = calm.followers()[0]
    old = partition_of(calm.requested(voter, vote(calm, voter, epoch=0, pre_vote=True)))
    assert (old.error_code, old.leader_id, old.leader_epoch) == (74, calm.leader.node_id, calm.epoch)
    assert partition_of(calm.requested(voter, vote(calm, voter, epoch=5, last=(5, 1)))).error_code == 42
    assert partition_of(calm.requested(voter, vote(calm, voter, epoch=5, last=(0, -1)))).error_code == 42
    other = vote(calm, voter, epoch=1)
    other.cluster_id = "another"
    assert calm.requested(voter, other).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    wrong_topic = vote(calm, voter, epoch=1)
    wrong_topic.topics[0].topic_name = "orders"
    assert calm.requested(voter, wrong_topic).error_code == ErrorCode.INVALID_REQUEST
    not_meant = vote(calm, calm.leader, epoch=calm.epoch + 1)
    answer = partition_of(calm.requested(voter, not_meant))
    assert (answer.error_code, answer.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)


def test_a_pre_vote_does_not_disturb_a_quorum_that_works(calm: CalmWorld) -> None:
    """Guard G19."""
    epoch = calm.epoch
    for place in calm.world._up():
        answer = partition_of(
            calm.requested(place, vote(calm, place, epoch=epoch, pre_vote=True, last=(epoch, 1 << 40)))
        )
        assert (answer.error_code, answer.vote_granted, answer.leader_id) == (0, False, calm.leader.node_id)
    calm.pass_time(1000)
    assert calm.epoch == epoch


def test_a_vote_for_a_short_log_is_refused_but_its_epoch_counts(calm: CalmWorld) -> None:
    voter = calm.followers()[0]
    epoch = calm.epoch
    answer = partition_of(calm.requested(voter, vote(calm, voter, epoch=epoch + 1)))
    assert (answer.error_code, answer.vote_granted, answer.leader_epoch, answer.leader_id) == (0, False, epoch + 1, -1)
    calm.pass_time(2000)
    assert len(calm.world._leaders()) == 1


def test_begin_and_end_of_an_epoch(calm: CalmWorld) -> None:
    follower, other = calm.followers()
    assert follower.node is not None
    answer = calm.requested(follower, begin_request(CLUSTER_ID, 9, calm.epoch - 1, follower.key, ()))
    assert partition_of(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (calm.leader.node_id, *calm.leader.address)
    answer = calm.requested(follower, begin_request(CLUSTER_ID, calm.leader.node_id, calm.epoch, other.key, ()))
    assert partition_of(answer).error_code == ErrorCode.INVALID_VOTER_KEY
    epoch, leader_id = calm.epoch, calm.leader.node_id
    answer = calm.requested(follower, end_request(CLUSTER_ID, leader_id, epoch, [other.key, follower.key], ()))
    assert (partition_of(answer).error_code, partition_of(answer).leader_id) == (0, leader_id)
    calm.requested(other, end_request(CLUSTER_ID, leader_id, epoch, [other.key, follower.key], ()))
    calm.pass_time(60)
    assert other.node is not None
    assert other.node.is_leader, "the first successor stands at once"


def test_a_leader_that_stops_hands_over(calm: CalmWorld) -> None:
    assert calm.leader.node is not None
    epoch = calm.epoch
    calm.leader.node.stop()
    calm.leader.host.is_over = True  # type: ignore[union-attr]
    calm.leader.node = None
    calm.pass_time(150)
    (leader,) = calm.world._leaders()
    assert leader.node is not None
    assert leader.node.epoch == epoch + 1


def kill_leader(calm: CalmWorld) -> list[Elections]:
    """Kills the leader's process. Returns the elections of the others, which have not been notified yet."""
    host = calm.leader.host
    assert host is not None
    host.is_over, calm.leader.node = True, None
    nodes = []
    for place in calm.followers():
        calm.world.network.refused.add((place.node_id, calm.leader.address))
        assert place.node is not None
        nodes.append(place.node)
    return [node._elections for node in nodes]


@pytest.mark.parametrize("voters", [3, 5])
def test_a_leader_whose_process_dies_is_replaced_long_before_the_fetch_timeout(voters: int) -> None:
    """The followers' connections report that the port is closed. Not all followers become candidates at the same
    moment.
    """
    for seed in range(30):
        calm = CalmWorld(seed=seed, voters=voters)
        for elections in kill_leader(calm):
            elections.leader_is_gone()
        calm.pass_time(100)
        assert len(calm.world._leaders()) == 1, f"seed {seed}"


def test_a_voter_that_notices_later_than_the_one_that_stands_is_asked_again() -> None:
    for seed in range(10):
        calm = CalmWorld(seed=seed)
        first, second = kill_leader(calm)
        first.leader_is_gone()
        calm.pass_time(60)
        assert not calm.world._leaders(), "the other one still follows the leader, as far as it knows"
        second.leader_is_gone()
        calm.pass_time(140)
        assert len(calm.world._leaders()) == 1, f"seed {seed}"


def test_an_election_that_cannot_be_won_does_not_wait_for_its_time_to_be_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter of three is dead and two become candidates at the same moment: each votes for itself."""
    monkeypatch.setattr(Elections, "_turn_ms", lambda self, gone_id: 0)
    split = 0
    for seed in range(30):
        calm = CalmWorld(seed=seed)
        before = calm.epoch
        for elections in kill_leader(calm):
            elections.leader_is_gone()
        calm.pass_time(300)
        (leader,) = calm.world._leaders()
        assert leader.node is not None
        split += leader.node.epoch > before + 1
    assert split, "some were split"


@pytest.mark.parametrize("kind", ["a voter with a full disk", "an observer"])
def test_who_does_not_stand_for_election_lets_others_after_the_fetch_timeout(kind: str) -> None:
    """An observer can be a voter that does not know it yet. Its leader is silent, but its port is not closed."""
    calm = CalmWorld(observers=1)
    epoch, leader_id = calm.epoch, calm.leader.node_id
    place = calm.followers()[0] if "voter" in kind else calm.world.places[101]
    if "voter" in kind:
        place.was_full, place.disk.free_bytes = True, 300
        calm.propose()
        calm.pass_time(300)
    request = vote(calm, place, epoch=epoch, pre_vote=True, last=(epoch, 1 << 40))
    assert not partition_of(calm.requested(place, request)).vote_granted
    pairs = {(place.node_id, leader_id), (leader_id, place.node_id)}
    calm.world.network.faults.cut = pairs
    calm.pass_time(2_000)
    answer = partition_of(calm.requested(place, request))
    assert (answer.leader_epoch, answer.leader_id, answer.vote_granted) == (epoch, leader_id, True)
    calm.world.network.faults.cut = set()
    calm.pass_time(3_000)
    assert not partition_of(calm.requested(place, request)).vote_granted, "it follows its leader again"
