"""The order of durability, read from the results of the quorum's events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.calm_quorum import DIRECTORY, STRANGER, CalmWorld, node_of, partition_of
from tests.support.node_world import METADATA_DIR, NodeWorld

from barnabas.common.errors import ErrorCode, StorageExhausted
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.records_metadata import NoOpRecord
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.raft.messages import vote_request
from barnabas.raft.quorum import Unattached
from barnabas.raft.quorum_state import FILE_NAME, ElectionState, decode_state
from barnabas.raft.ready import Answer, Committed, Promise, Ready, Request
from barnabas.simulation.crashing_disk import CrashingDisk, Fate
from barnabas.simulation.worlds.quorum_places import CLUSTER_ID, Place


def watch(node: Any, note: Callable[[Ready], None]) -> None:
    """Calls `note` with each value that `node` is about to carry out."""
    execution = node._execution
    carry_out = execution.carry_out

    def noted(ready: Ready) -> None:
        note(ready)
        carry_out(ready)

    execution.carry_out = noted


def readies_of(place: Place) -> list[Ready]:
    found: list[Ready] = []
    watch(place.node, found.append)
    return found


def vote_for_stranger(calm: CalmWorld, voter: Place) -> VoteRequest:
    epoch = calm.epoch + 1
    return vote_request(CLUSTER_ID, STRANGER, voter.key, epoch=epoch, last=(calm.epoch, 1 << 40), pre_vote=False)


def voted(epoch: int) -> ElectionState:
    return ElectionState(epoch, voted_id=STRANGER.node_id, voted_directory_id=DIRECTORY)


# Votes.


def test_a_vote_and_its_answer_are_one_value_with_the_promise_first() -> None:
    """Guard G16."""
    calm = CalmWorld()
    voter = calm.followers()[0]
    readies = readies_of(voter)
    calm.call(voter, vote_for_stranger(calm, voter))
    (ready,) = readies
    assert ready.promise == Promise(voted(calm.epoch + 1), is_binding=True)
    (answer,) = ready.messages
    assert isinstance(answer, Answer)
    assert partition_of(answer.message).vote_granted
    assert answer.if_not_saved is not None
    assert Ready._fields.index("promise") < Ready._fields.index("messages")


def test_a_vote_is_on_disk_when_its_answer_leaves() -> None:
    calm = CalmWorld()
    voter = calm.followers()[0]
    path = f"{METADATA_DIR}/{FILE_NAME}"
    seen: list[ElectionState] = []
    request = vote_for_stranger(calm, voter)
    node_of(voter).server.serve(
        request, 2, "CONTROLLER", lambda response: seen.append(decode_state(voter.disk.read(path), path))
    )
    assert seen == [voted(calm.epoch + 1)]


def test_a_vote_without_disk_space_is_not_granted_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = CalmWorld()
    voter = calm.followers()[0]
    node: Any = voter.node
    epoch = calm.epoch + 1
    request = vote_for_stranger(calm, voter)

    def full(state: ElectionState) -> None:
        raise StorageExhausted("/data", "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(node._execution._promises, "save", full)
        assert calm.requested(voter, request).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.quorum.role == Unattached(epoch), "it follows the epoch, and may still vote in it"
    assert not node.quorum.is_saved
    assert partition_of(calm.requested(voter, request)).vote_granted
    assert node.quorum.role == Unattached(epoch, STRANGER)
    assert node.quorum.is_saved


def test_a_candidate_asks_for_votes_only_after_its_own_is_promised() -> None:
    calm = CalmWorld()
    followers = calm.followers()
    readies = {place.node_id: readies_of(place) for place in followers}
    node_of(calm.leader).stop()
    calm.world.crash(calm.leader, Fate.KEPT)
    calm.pass_time(2000)
    candidacies = 0
    for place in followers:
        promised: set[int] = set()
        for ready in readies[place.node_id]:
            requested = [m.message for m in ready.messages if isinstance(m, Request)]
            for message in requested:
                if isinstance(message, VoteRequest) and not partition_of(message).pre_vote:
                    candidacies += 1
                    assert partition_of(message).replica_epoch in promised
            if ready.promise is not None and ready.promise.state.voted_id == place.node_id:
                promised.add(ready.promise.state.epoch)
    assert candidacies > 0
    assert len(calm.world._leaders()) == 1


# Acknowledgements.


def test_a_follower_claims_only_what_it_has_flushed() -> None:
    """Guard G16."""
    calm = CalmWorld()
    follower = calm.followers()[0]
    node = node_of(follower)
    told: list[tuple[str, int]] = []

    def note(ready: Ready) -> None:
        if ready.records:
            assert not ready.messages, "what has just come is not acknowledged at once"
            told.append(("appended", ready.records[-1].batch.last_offset + 1))
        if ready.flush:
            told.append(("flush", node.log.end_offset))
        for message in ready.messages:
            if isinstance(message, Request) and isinstance(message.message, FetchRequest):
                assert message.durable_end == partition_of(message.message).fetch_offset
                assert message.durable_end <= node.log.flushed_offset
                told.append(("fetch", message.durable_end))

    watch(node, note)
    calm.propose()
    end_offset = calm.end_offset
    calm.pass_time(100)
    place = told.index(("appended", end_offset))
    assert told[place : place + 3] == [("appended", end_offset), ("flush", end_offset), ("fetch", end_offset)]


def test_a_claim_that_is_not_durable_is_flushed_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The carrying out holds the rule by itself, whatever a part of the node asks for."""
    calm = CalmWorld()
    follower = calm.followers()[0]
    node: Any = follower.node
    log, peers = node.log, node._execution._peers
    end_offset = log.end_offset
    log.flushed_offset = end_offset - 1
    sent: list[int] = []
    monkeypatch.setattr(peers, "send", lambda *requested, timeout_ms: sent.append(log.flushed_offset))
    request = Request(("h", 1), FetchRequest(), lambda response: None, 10, durable_end=end_offset)
    node._run(lambda: node._core.draft.send(request))
    assert sent == [end_offset]


# The high watermark.


def test_a_voter_that_is_alone_commits_what_it_has_flushed() -> None:
    disk = CrashingDisk()
    world = NodeWorld(disk=disk).join()
    segment = f"{METADATA_DIR}/{'0' * 20}.log"
    seen: list[tuple[Ready, bool]] = []
    disk.synced_paths.clear()
    watch(world.raft, lambda ready: seen.append((ready, segment in disk.synced_paths)))
    world.raft.propose([(NoOpRecord(), 0)], wall_ms=5)
    end_offset = world.raft.log_end_offset
    assert seen == [
        (Ready(wakes=True, flush=True), False),
        (Ready(committed=Committed(end_offset, is_all=True), wakes=True), True),
    ]


def test_a_leader_commits_what_a_majority_has_flushed() -> None:
    calm = CalmWorld()
    leader, nodes = node_of(calm.leader), [node_of(place) for place in calm.world._up()]
    checkpoints: list[int] = []

    def note(ready: Ready) -> None:
        if isinstance(ready.committed, Committed):
            high_watermark = ready.committed.high_watermark
            checkpoints.append(high_watermark)
            assert sum(node.log.flushed_offset >= high_watermark for node in nodes) >= 2

    watch(leader, note)
    for _ in range(5):
        calm.propose()
        calm.pass_time(20)
    calm.pass_time(100)
    assert checkpoints == sorted(set(checkpoints))
    assert checkpoints[-1] == calm.end_offset


def test_a_leader_sends_its_records_during_its_own_flush() -> None:
    """Guard G16: the leader sends its records before its flush and counts itself after it, so that no commit waits for
    two disks in sequence.
    """
    calm = CalmWorld()
    readies = readies_of(calm.leader)
    calm.propose()
    assert readies == [Ready(wakes=True, flush=True)]
    assert Ready._fields.index("wakes") < Ready._fields.index("flush")
