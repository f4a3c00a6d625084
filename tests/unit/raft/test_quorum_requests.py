"""Requests to the nodes of a calm quorum: codes, texts, requests that wait, and the leader's description of all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.support.calm_quorum import DIRECTORY, STRANGER, CalmWorld, adding, partition_of, removing

from barnabas.common.errors import ErrorCode
from barnabas.common.types import METADATA_TOPIC
from barnabas.protocol.codec import encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from barnabas.raft.messages import (
    fetch_request,
    fetch_snapshot_request,
    update_voter_request,
)
from barnabas.raft.quorum import Follower
from barnabas.raft.snapshots import SnapshotId
from barnabas.raft.voters import VoterKey
from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.worlds.quorum_checker import Violation
from barnabas.simulation.worlds.quorum_places import CLUSTER_ID, Place


@pytest.fixture
def calm() -> CalmWorld:
    return CalmWorld()


# Fetch.


def test_fetches_that_are_refused(calm: CalmWorld) -> None:
    follower = calm.followers()[0]
    answer = calm.requested(follower, calm.fetch(offset=0))
    partition = partition_of(answer)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (
        calm.leader.node_id,
        calm.epoch,
    )
    assert [e.port for e in answer.node_endpoints] == [calm.leader.address[1]]
    leader = calm.leader
    for request, code in (
        (calm.fetch(offset=0, epoch=calm.epoch - 1, last_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (calm.fetch(offset=0, epoch=calm.epoch + 1, last_epoch=0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (calm.fetch(offset=-1), ErrorCode.INVALID_REQUEST),
        (calm.fetch(offset=0, last_epoch=calm.epoch + 1), ErrorCode.INVALID_REQUEST),
    ):
        refused = partition_of(calm.requested(leader, request))
        assert (refused.error_code, refused.high_watermark) == (code, -1)
    other = calm.fetch(offset=0)
    other.cluster_id = "another"
    assert calm.requested(leader, other).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    unknown = calm.fetch(offset=0)
    unknown.topics[0].topic, unknown.topics[0].topic_id = "orders", b"o" * 16
    assert calm.requested(leader, unknown).error_code == ErrorCode.INVALID_REQUEST
    for index in (1, -1):
        unknown = calm.fetch(offset=0)
        unknown.topics[0].partitions[0].partition = index
        assert calm.requested(leader, unknown).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_at_the_end_waits_for_records(calm: CalmWorld) -> None:
    answers = calm.call(calm.leader, calm.fetch(offset=calm.end_offset))
    calm.pass_time(50)
    assert answers == []
    end_offset = calm.end_offset
    calm.propose()
    (answer,) = answers
    assert partition_of(answer).error_code == 0
    assert int.from_bytes(partition_of(answer).records[:8], "big") == end_offset


def test_a_fetch_waits_no_longer_than_it_asked_for(calm: CalmWorld) -> None:
    request = calm.fetch(offset=calm.end_offset)
    request.max_wait_ms = 80
    answers = calm.call(calm.leader, request)
    calm.pass_time(79)
    assert answers == []
    calm.pass_time(2)
    (answer,) = answers
    assert len(partition_of(answer).records) == 0
    request.max_wait_ms = 0
    assert len(calm.call(calm.leader, request)) == 1


def test_a_fetch_is_answered_when_the_replica_knows_an_older_high_watermark(calm: CalmWorld) -> None:
    end_offset = calm.end_offset
    partition = partition_of(calm.requested(calm.leader, calm.fetch(offset=end_offset, high_watermark=end_offset - 1)))
    assert partition.high_watermark == end_offset
    assert calm.call(calm.leader, calm.fetch(offset=end_offset, high_watermark=end_offset)) == []


def test_a_waiting_fetch_is_answered_when_its_leader_no_longer_leads(calm: CalmWorld) -> None:
    answers = calm.call(calm.leader, calm.fetch(offset=calm.end_offset))
    node, epoch = calm.leader.node, calm.epoch
    assert node is not None
    node._run(lambda: node.quorum.become_unattached(epoch + 1))
    (answer,) = answers
    assert partition_of(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_log_that_diverges_gets_the_point_of_divergence(calm: CalmWorld) -> None:
    follower = calm.followers()[0]
    first_epoch, first_end = calm.epoch, calm.end_offset
    assert follower.node is not None
    calm.leader.node.stop()  # type: ignore[union-attr]
    calm.leader.host.is_over = True  # type: ignore[union-attr]
    calm.leader.node = None
    calm.pass_time(300)
    (calm.leader,) = calm.world._leaders()
    partition = partition_of(calm.requested(calm.leader, calm.fetch(offset=first_end + 5, last_epoch=first_epoch)))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (first_epoch, first_end)
    assert len(partition.records) == 0


# Snapshots.


def test_who_is_far_behind_gets_a_snapshot_in_pieces() -> None:
    """Guard G17."""
    calm = CalmWorld(snapshots=True)
    for _ in range(40):
        calm.propose()
        calm.pass_time(20)
    assert calm.leader.node is not None
    snapshot_id = SnapshotId(*max(calm.leader.node._core.files.list()))
    shown = partition_of(calm.requested(calm.leader, calm.fetch(offset=0, last_epoch=0))).snapshot_id
    assert SnapshotId(shown.end_offset, shown.epoch) == snapshot_id
    whole = b""
    while True:
        request = fetch_snapshot_request(
            CLUSTER_ID,
            STRANGER,
            epoch=calm.epoch,
            snapshot_id=snapshot_id,
            position=len(whole),
        )
        request.max_bytes = 100
        piece = partition_of(calm.requested(calm.leader, request))
        assert (piece.error_code, piece.position) == (0, len(whole))
        whole += bytes(piece.unaligned_records)
        if len(whole) == piece.size:
            break
    assert whole == calm.leader.disk.read(calm.leader.node._core.files.path(snapshot_id))


def test_snapshots_that_are_not_given(calm: CalmWorld) -> None:
    def requested(
        snapshot_id: SnapshotId, position: int = 0, *, place: Place | None = None, epoch: int | None = None
    ) -> int:
        request: FetchSnapshotRequest = fetch_snapshot_request(
            CLUSTER_ID,
            STRANGER,
            epoch=calm.epoch if epoch is None else epoch,
            snapshot_id=snapshot_id,
            position=position,
        )
        code: int = partition_of(calm.requested(place or calm.leader, request)).error_code
        return code

    assert requested(SnapshotId(0, 0)) == ErrorCode.SNAPSHOT_NOT_FOUND, "the first voters are in the log"
    assert requested(SnapshotId(5, 1)) == ErrorCode.SNAPSHOT_NOT_FOUND
    assert requested(SnapshotId(5, 1), place=calm.followers()[0]) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert requested(SnapshotId(5, 1), epoch=calm.epoch + 3) == ErrorCode.UNKNOWN_LEADER_EPOCH
    unknown = fetch_snapshot_request(CLUSTER_ID, STRANGER, epoch=1, snapshot_id=SnapshotId(5, 1), position=0)
    unknown.topics[0].name = "orders"
    assert partition_of(calm.requested(calm.leader, unknown)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown.cluster_id = "another"
    assert calm.requested(calm.leader, unknown).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_snapshot_is_not_given_beyond_its_end() -> None:
    calm = CalmWorld(snapshots=True)
    for _ in range(30):
        calm.propose()
        calm.pass_time(20)
    assert calm.leader.node is not None
    snapshot_id = max(calm.leader.node._core.files.list())
    size_bytes = calm.leader.node._core.files.size(snapshot_id)
    for position, code in ((size_bytes, 99), (-1, 99), (size_bytes - 1, 0)):
        request = fetch_snapshot_request(
            CLUSTER_ID, STRANGER, epoch=calm.epoch, snapshot_id=snapshot_id, position=position
        )
        assert partition_of(calm.requested(calm.leader, request)).error_code == code


# -- the leader's description of all


def describe(topic: str = METADATA_TOPIC) -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[DescribeQuorumRequest.TopicData(topic_name=topic, partitions=[partition])])


def test_the_leader_describes_the_quorum() -> None:
    calm = CalmWorld(observers=1)
    calm.pass_time(600)
    response = calm.requested(calm.leader, describe())
    partition = partition_of(response)
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, calm.leader.node_id, calm.epoch)
    assert partition.high_watermark == calm.end_offset
    assert calm.leader.host is not None
    wall_ms = calm.leader.host.wall_ms()
    for state, node_id in zip(partition.current_voters, (1, 2, 3), strict=True):
        assert (state.replica_id, state.replica_directory_id) == (node_id, bytes([node_id] * 16))
        assert state.log_end_offset == calm.end_offset
        assert 0 <= wall_ms - state.last_fetch_timestamp <= 600
        assert 0 <= wall_ms - state.last_caught_up_timestamp <= 600
    (observer,) = partition.observers
    assert observer.replica_id == 101
    assert observer.log_end_offset == calm.end_offset
    assert [(n.node_id, n.listeners[0].name, n.listeners[0].port) for n in response.nodes] == [
        (n, "CONTROLLER", 9000 + n) for n in (1, 2, 3)
    ]


def test_static_voters_are_described_without_directories() -> None:
    """`LeaderState.describeReplicaState` of Kafka 4.1.0: the keys of the voters of kraft.version 0 have none."""
    calm = CalmWorld(observers=1, dynamic=False)
    calm.pass_time(600)
    partition = partition_of(calm.requested(calm.leader, describe()))
    assert [(state.replica_id, state.replica_directory_id) for state in partition.current_voters] == [
        (node_id, bytes(16)) for node_id in (1, 2, 3)
    ]
    (observer,) = partition.observers
    assert observer.replica_directory_id == calm.world.places[observer.replica_id].key.directory_id


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_describe_it_without_directories_and_addresses(version: int) -> None:
    calm = CalmWorld(observers=1)
    calm.pass_time(600)
    assert calm.leader.node is not None
    answers: list[Any] = []
    calm.leader.node.server.serve(describe(), version, "CONTROLLER", answers.append)
    (response,) = answers
    encode(response, version)
    assert [state.replica_id for state in partition_of(response).current_voters] == [1, 2, 3]
    assert [state.replica_id for state in partition_of(response).observers] == [101]


def test_nobody_else_describes_it(calm: CalmWorld) -> None:
    assert partition_of(calm.requested(calm.followers()[0], describe())).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = partition_of(calm.requested(calm.leader, describe("orders")))
    assert (unknown.error_code, unknown.error_message) == (3, "This server does not host this topic-partition.")
    assert calm.requested(calm.leader, DescribeQuorumRequest()).topics == []


def test_a_voter_that_is_gone_is_seen_to_lag(calm: CalmWorld) -> None:
    gone = calm.followers()[0]
    gone.host.is_over, gone.node = True, None  # type: ignore[union-attr]
    calm.propose()
    calm.pass_time(500)
    voters = {state.replica_id: state for state in partition_of(calm.requested(calm.leader, describe())).current_voters}
    assert voters[gone.node_id].log_end_offset < calm.end_offset
    assert voters[calm.leader.node_id].log_end_offset == calm.end_offset


# Voters that change.


def with_spare() -> tuple[CalmWorld, Place]:
    calm = CalmWorld(changes=True)
    calm.world._begin_changes = lambda: None  # type: ignore[method-assign]
    return calm, calm.world.places[4]


def ids(places: Iterable[Place]) -> set[tuple[int, ...]]:
    return {place.node.voters.ids for place in places if place.node is not None}


def test_a_node_that_has_caught_up_becomes_a_voter() -> None:
    calm, spare = with_spare()
    answer = calm.requested(calm.leader, adding(spare), wait_ms=200)
    assert (answer.error_code, answer.error_message) == (0, "NONE")
    calm.pass_time(600)
    assert ids(calm.world._up()) == {(1, 2, 3, 4)}
    assert spare.node is not None
    assert spare.node.quorum.is_voter
    again = calm.requested(calm.leader, adding(spare))
    assert again.error_code == ErrorCode.DUPLICATE_VOTER
    assert "is already part of the set of voters" in again.error_message


def test_a_voter_is_removed_and_votes_no_more() -> None:
    calm = CalmWorld()
    gone = calm.followers()[0]
    answer = calm.requested(calm.leader, removing(gone.key), wait_ms=100)
    assert (answer.error_code, answer.error_message) == (0, "NONE")
    calm.pass_time(600)
    assert gone.node is not None
    assert not gone.node.quorum.is_voter
    assert isinstance(gone.node.quorum.role, Follower)
    assert ids(calm.world._up()) == {tuple(n for n in (1, 2, 3) if n != gone.node_id)}


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    calm = CalmWorld()
    gone = calm.leader
    answer = calm.requested(gone, removing(gone.key), wait_ms=100)
    assert answer.error_code == 0
    calm.pass_time(800)
    (leader,) = calm.world._leaders()
    assert leader is not gone
    assert ids([leader]) == {tuple(n for n in (1, 2, 3) if n != gone.node_id)}
    assert gone.node is not None
    assert gone.node.leader_id == leader.node_id


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_was_removed_finds_the_next_one_before_an_election_timeout(seed: int) -> None:
    calm = CalmWorld(seed=seed)
    gone = calm.leader
    calm.requested(gone, removing(gone.key), wait_ms=190)
    assert gone.node is not None
    (leader,) = calm.world._leaders()
    assert gone.node.leader_id == leader.node_id != gone.node_id


def test_changes_that_are_refused() -> None:
    calm, spare = with_spare()
    leader = calm.leader
    mismatch = calm.requested(leader, adding(spare, cluster_id=""))
    assert mismatch.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert mismatch.error_message == f'The given id "" doesn\'t match the cluster id "{CLUSTER_ID}"'
    assert calm.requested(calm.followers()[0], adding(spare)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert calm.requested(leader, adding(spare, voter_directory_id=bytes(16))).error_code == ErrorCode.INVALID_REQUEST
    assert calm.requested(leader, adding(spare, listeners=[])).error_code == ErrorCode.INVALID_REQUEST
    missing = calm.requested(leader, removing(VoterKey(2, DIRECTORY)))
    assert missing.error_code == ErrorCode.VOTER_NOT_FOUND
    assert calm.requested(leader, removing(VoterKey(2))).error_code == ErrorCode.INVALID_REQUEST


def test_one_change_at_a_time() -> None:
    """Guard G18."""
    calm, spare = with_spare()
    first = calm.call(calm.leader, adding(spare))
    second = calm.requested(calm.leader, removing(calm.followers()[0].key))
    assert second.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert second.error_message == ("Request timed out waiting for leader to handle previous voter change request")
    calm.pass_time(200)
    assert [answer.error_code for answer in first] == [0]


def test_who_has_not_caught_up_is_not_added() -> None:
    calm, spare = with_spare()
    unknown = adding(spare, voter_directory_id=DIRECTORY)
    answer = calm.requested(calm.leader, unknown, wait_ms=200)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "since it is lagging behind" in answer.error_message
    spare.host.is_over, spare.node = True, None  # type: ignore[union-attr]
    answer = calm.requested(calm.leader, adding(spare), wait_ms=800)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_the_last_voter_stays() -> None:
    calm = CalmWorld(voters=1)
    assert calm.requested(calm.leader, removing(calm.leader.key)).error_code == ErrorCode.VOTER_NOT_FOUND


def test_a_static_quorum_does_not_change() -> None:
    calm = CalmWorld(dynamic=False)
    answer = calm.requested(calm.leader, removing(VoterKey(2, bytes([2] * 16))))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "Cluster doesn't support removing voter because the kraft.version feature is 0"


def test_a_static_quorum_becomes_a_dynamic_one() -> None:
    """KIP-853: the voters get their directories, and can be changed from then on; all know it after a restart."""
    calm = CalmWorld(dynamic=False)
    leader = calm.leader.node
    assert leader is not None
    assert leader.changes.upgrade_refusal() is None
    before = leader.high_watermark
    leader.changes.upgrade()
    calm.pass_time(100)
    assert leader.is_leader
    assert leader.high_watermark == before + 2, "the version and the voters"
    assert [voter.key for voter in leader.voters] == sorted(place.key for place in calm.world._up())
    for place in calm.world._up():
        assert place.node is not None
        assert place.node.kraft_version == 1
        assert place.node.quorum.is_voter
        assert [voter.key for voter in place.node.voters] == [voter.key for voter in leader.voters]
    gone = calm.followers()[0]
    assert calm.requested(calm.leader, removing(gone.key), wait_ms=100).error_code == 0
    assert gone.node_id not in leader.voters.ids
    assert calm.requested(calm.leader, adding(gone), wait_ms=300).error_code == 0
    for place in calm.world._up():
        calm.world.crash(place, Fate.KEPT)
        calm.world.start(place)
    calm.pass_time(3000)
    (leader_place,) = calm.world._leaders()
    assert ids(calm.world._up()) == {(1, 2, 3)}
    assert leader_place.node is not None
    assert leader_place.node.kraft_version == 1


def test_voters_that_never_fetched_hold_the_upgrade_up() -> None:
    calm = CalmWorld(dynamic=False)
    silent, *_ = calm.followers()
    for place in calm.world._up():
        calm.world.crash(place, Fate.KEPT)
    for place in calm.world.places.values():
        if place is not silent:
            calm.world.start(place)
    calm.pass_time(3000)
    (leader,) = calm.world._leaders()
    assert leader.node is not None
    refusal = leader.node.changes.upgrade_refusal()
    assert refusal is not None
    assert f"The directory ids of the voters {silent.node_id} are not known" in refusal
    calm.world.start(silent)
    calm.pass_time(1000)
    assert leader.node.changes.upgrade_refusal() is None


def told(place: Any, calm: CalmWorld, *, high: int = 1, host: str = "elsewhere") -> UpdateRaftVoterRequest:
    """Returns the registration of a static voter, with endpoints of two listeners."""
    request = update_voter_request(CLUSTER_ID, place.key, calm.epoch, ())
    names = ("CONTROLLER", "OTHER")
    request.listeners = [UpdateRaftVoterRequest.Listener(name=name, host=host, port=1) for name in names]
    request.kraft_version_feature.max_supported_version = high
    return request


def test_updates_of_static_voters_are_kept_for_the_upgrade() -> None:
    """The leader of a static quorum has no record to write it into, and answers as if it had."""
    calm = CalmWorld(dynamic=False)
    leader, (one, other) = calm.leader.node, calm.followers()
    assert leader is not None
    end = calm.end_offset
    answer = calm.requested(calm.leader, told(one, calm))
    assert (answer.error_code, answer.current_leader.leader_id) == (0, calm.leader.node_id)
    assert calm.requested(calm.leader, told(other, calm, high=0)).error_code == 0
    assert calm.end_offset == end, "no record of voters before kraft.version 1"
    refusal = leader.changes.upgrade_refusal()
    assert refusal == f"The voters {other.node_id} do not support it."
    assert calm.requested(calm.leader, told(other, calm)).error_code == 0
    leader.changes.upgrade()
    assert leader.voters.address_of(one.node_id, "OTHER") == ("elsewhere", 1)


def test_a_leader_warns_of_two_voters_with_one_node_id() -> None:
    calm = CalmWorld(dynamic=False)
    place = calm.followers()[0]
    for directory in [DIRECTORY, bytes([9] * 16)] * 4:
        request = fetch_request(
            CLUSTER_ID,
            VoterKey(place.node_id, directory),
            epoch=calm.epoch,
            offset=calm.end_offset,
            last_epoch=calm.epoch,
            high_watermark=-1,
        )
        calm.requested(calm.leader, request)
    warnings = [line for line in calm.world.timeline if "two processes" in line]
    assert len(warnings) == 1
    assert f"have node.id {place.node_id}, in different directories" in warnings[0]


def test_what_no_static_voter_can_say() -> None:
    calm = CalmWorld(dynamic=False)
    place = calm.followers()[0]
    wrong = told(place, calm)
    wrong.listeners = wrong.listeners[1:]
    assert calm.requested(calm.leader, wrong).error_code == ErrorCode.INVALID_REQUEST
    wrong = told(place, calm)
    wrong.kraft_version_feature.min_supported_version = 1
    assert calm.requested(calm.leader, wrong).error_code == ErrorCode.INVALID_REQUEST
    wrong = told(place, calm)
    wrong.voter_id = 9
    assert calm.requested(calm.leader, wrong).error_code == ErrorCode.VOTER_NOT_FOUND
    assert calm.requested(place, told(place, calm)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_does_not_lead_upgrades_nothing() -> None:
    calm = CalmWorld(dynamic=False)
    follower = calm.followers()[0].node
    assert follower is not None
    assert "not ready" in str(follower.changes.upgrade_refusal())


def test_a_voter_that_has_moved_sends_its_new_address(calm: CalmWorld) -> None:
    mover = calm.followers()[0]
    request: UpdateRaftVoterRequest = update_voter_request(CLUSTER_ID, mover.key, calm.epoch, ())
    request.listeners = [UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="elsewhere", port=1)]
    answer = calm.requested(calm.leader, request)
    assert answer.error_code == 0
    assert (answer.current_leader.leader_id, answer.current_leader.port) == (
        calm.leader.node_id,
        calm.leader.address[1],
    )
    assert calm.leader.node is not None
    assert calm.leader.node.voters.address_of(mover.node_id, "CONTROLLER") == ("elsewhere", 1)
    calm.pass_time(2000)
    assert calm.leader.node.voters.address_of(mover.node_id, "CONTROLLER") == mover.address, "it was not so: it says so"
    request.kraft_version_feature.max_supported_version = 0
    assert calm.requested(calm.leader, request).error_code == ErrorCode.INVALID_REQUEST
    request.voter_directory_id = DIRECTORY
    request.kraft_version_feature.max_supported_version = 1
    assert calm.requested(calm.leader, request).error_code == ErrorCode.VOTER_NOT_FOUND
    request.current_leader_epoch += 1
    assert calm.requested(calm.leader, request).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(4, 19))
def test_replicas_of_any_age_are_answered(calm: CalmWorld, version: int) -> None:
    """The answers of old versions have no field for the leader, the diverging epoch or the snapshot."""
    assert calm.leader.node is not None
    for offset, last_epoch in ((0, 0), (calm.end_offset + 5, calm.epoch)):
        answers: list[Message] = []
        request = calm.fetch(offset=offset, last_epoch=last_epoch)
        calm.leader.node.server.serve(request, version, "CONTROLLER", answers.append)
        (answer,) = answers
        assert len(encode(answer, version)) > 20


def test_a_leader_that_lost_committed_records_is_not_followed(calm: CalmWorld) -> None:
    """Records that the controller has applied cannot be undone: the node stops, and logs the reason."""
    follower = calm.followers()[0]
    assert follower.node is not None
    with pytest.raises(Violation, match=r"has no record at 1, but everything before \d+ was committed"):
        follower.node._following._truncate(calm.epoch, 1)
