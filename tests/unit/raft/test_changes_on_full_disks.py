"""Changes of the voters, truncations, and new epochs for which the metadata log has no space (decision 12)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.calm_quorum import CalmWorld, adding, node_of, removing

from barnabas.common.errors import ErrorCode, StorageExhausted
from barnabas.protocol.messages.records_raft import LeaderChangeMessage
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from barnabas.raft.messages import update_voter_request
from barnabas.raft.snapshots import SnapshotId, encode_control_batch
from barnabas.simulation.worlds.quorum_places import CLUSTER_ID, Place


def fill(place: Place) -> None:
    place.was_full = True
    place.disk.free_bytes = 0


@pytest.mark.parametrize("own", [False, True], ids=["a follower", "itself"])
def test_a_removal_without_space_is_refused_and_changes_no_voter(own: bool) -> None:
    calm = CalmWorld()
    gone = calm.leader if own else calm.followers()[0]
    fill(calm.leader)
    answer = calm.requested(calm.leader, removing(gone.key))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert answer.error_message == "There is no space for the metadata log."
    leader = node_of(calm.leader)
    assert leader.is_leader
    assert leader.voters.ids == (1, 2, 3)
    assert leader.log_end_offset == leader.high_watermark, "nothing was appended"
    calm.pass_time(400)
    assert not leader.is_leader, "another voter can write"
    calm.leader.make_room()
    calm.pass_time(1_500)
    (calm.leader,) = calm.world._leaders()
    assert calm.requested(calm.leader, removing(gone.key), wait_ms=200).error_code == 0
    assert gone.node_id not in node_of(calm.leader).voters.ids


def test_an_addition_without_space_is_refused() -> None:
    calm = CalmWorld(changes=True)
    calm.world._begin_changes = lambda: None  # type: ignore[method-assign]
    spare = calm.world.places[4]
    fill(calm.leader)
    assert calm.requested(calm.leader, adding(spare), wait_ms=80).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node_of(calm.leader).voters.ids == (1, 2, 3)


def test_a_leader_that_is_alone_stays_leader() -> None:
    calm = CalmWorld(voters=1)
    leader = node_of(calm.leader)
    fill(calm.leader)
    request = update_voter_request(CLUSTER_ID, calm.leader.key, calm.epoch, ())
    request.listeners = [UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="elsewhere", port=1)]
    assert calm.requested(calm.leader, request).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    calm.pass_time(2_000)
    assert leader.is_leader
    assert leader.voters.address_of(calm.leader.node_id, "CONTROLLER") == calm.leader.address
    calm.leader.make_room()
    end_offset = calm.end_offset
    calm.propose()
    assert leader.high_watermark > end_offset


def test_an_upgrade_without_space_leaves_the_voters_static() -> None:
    calm = CalmWorld(dynamic=False)
    leader = node_of(calm.leader)
    fill(calm.leader)
    assert not leader.changes.upgrade()
    assert leader.kraft_version == 0
    assert leader.is_leader
    calm.leader.make_room()
    assert leader.changes.upgrade()
    calm.pass_time(100)
    assert leader.high_watermark == leader.log_end_offset


def test_a_truncation_waits_for_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old leader of a divided quorum has records that the new one replaced, and no space when it follows again."""
    calm = CalmWorld()
    old, others = calm.leader, {place.node_id for place in calm.followers()}
    calm.propose()
    calm.pass_time(100)
    network: Any = calm.world.network
    network.faults.cut = {(a, b) for a in others for b in (old.node_id,)} | {
        (a, b) for a in (old.node_id,) for b in others
    }
    calm.propose()
    own_end = node_of(old).log_end_offset
    calm.pass_time(1_500)
    (calm.leader,) = [place for place in calm.world._leaders() if place is not old]
    assert not node_of(old).is_leader, "no majority fetches from it"
    fill(old)
    network.faults.cut = set()
    calm.pass_time(1_000)
    assert node_of(old).leader_id == calm.leader.node_id
    assert node_of(old).log_end_offset == own_end, "as it was"
    assert any("the metadata log cannot be written" in line for line in calm.world.timeline)
    old.make_room()
    calm.pass_time(1_500)
    assert node_of(old).log_end_offset == calm.end_offset
    assert node_of(old).high_watermark == node_of(calm.leader).high_watermark


@pytest.mark.parametrize("follows_snapshot", [False, True])
@pytest.mark.parametrize("leads", [False, True])
def test_a_log_does_not_claim_the_epoch_of_a_batch_that_found_no_space(leads: bool, follows_snapshot: bool) -> None:
    """Otherwise the voter would wait for records of that epoch after a restart, although it never had them."""
    calm = CalmWorld()
    place = calm.followers()[0]
    log = node_of(place).log
    if follows_snapshot:
        log.start_after_snapshot(SnapshotId(log.end_offset + 10, log.latest_epoch + 2))
    before = log.latest_epoch, log.end_offset
    fill(place)
    epoch = log.latest_epoch + 3
    change = LeaderChangeMessage(version=0, leader_id=1)
    data = encode_control_batch([change], base_offset=log.end_offset, epoch=epoch, wall_ms=1)
    with pytest.raises(StorageExhausted):
        if leads:
            log.append(data, epoch)
        else:
            log.append_as_follower(data)
    assert (log.latest_epoch, log.end_offset) == before
    place.make_room()
    log.append_as_follower(data)
    assert (log.latest_epoch, log.end_offset) == (epoch, before[1] + 1)
