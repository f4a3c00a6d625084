"""Reasons for which a node refuses to start, each in one line with advice."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controller_world import make_config
from tests.support.node_world import METADATA_DIR, NodeWorld

from barnabas.common.errors import ErrorCode, FatalFault
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.protocol.messages.records_raft import KRaftVersionRecord
from barnabas.protocol.messages.vote import VoteResponse
from barnabas.raft.formatting import ensure_formatted
from barnabas.raft.node import RaftNode
from barnabas.raft.quorum_state import ElectionState, encode_state
from barnabas.raft.snapshots import SnapshotId, encode_snapshot
from barnabas.raft.starting import state_at_least
from barnabas.raft.voters import VoterSet
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import MemoryHost

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
THREE = {"controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093"}


class DeadPeers:
    """Peers that answer each request with the same error, a little later."""

    def __init__(self, host: MemoryHost, response: Message | None) -> None:
        self._host, self._response = host, response
        self.requested: list[tuple[str, int]] = []

    def send(self, address: tuple[str, int], request: Message, reply: Any, *, timeout_ms: int) -> None:
        self.requested.append(address)
        self._host.timers.call_later(1, lambda: reply(self._response))

    def is_refused(self, address: tuple[str, int]) -> bool:
        return False


def started(
    properties: dict[str, str], *, disk: MemoryDisk | None = None, response: Message | None = None
) -> tuple[RaftNode, MemoryHost, DeadPeers]:
    host = MemoryHost(1, disk=disk)
    config = make_config(properties)
    formatted = ensure_formatted(host, config, cluster_id=CLUSTER_ID)
    peers = DeadPeers(host, response)
    node = RaftNode(host, config, MetadataStore(), formatted, peers)
    node.start()
    return node, host, peers


def test_other_static_voters_than_those_of_the_directory() -> None:
    _, host, _ = started(THREE)
    state = encode_state(ElectionState(3), kraft_version=0, voter_ids=[1, 2, 3])
    host.disk.write(f"{METADATA_DIR}/quorum-state", state)
    started(THREE, disk=host.disk)
    with pytest.raises(FatalFault, match=r"with the voters 1, 2, 3, but controller.quorum.voters names 1, 2: set it"):
        started({"controller.quorum.voters": "1@a:9093,2@b:9093"}, disk=host.disk)


def test_a_voter_of_the_log_without_the_role() -> None:
    world = NodeWorld().join()
    world.raft.stop()
    properties = {
        "process.roles": "broker",
        "listeners": "PLAINTEXT://localhost:9092",
        "controller.quorum.bootstrap.servers": "localhost:9093",
    }
    with pytest.raises(FatalFault, match=r"node 1 votes in the metadata quorum .* process.roles does not name"):
        NodeWorld(properties, disk=world.host.disk).start()


def test_a_log_of_a_newer_metadata_version() -> None:
    world = NodeWorld().join()
    world.raft.propose([(FeatureLevelRecord(name="metadata.version", feature_level=99), 0)], wall_ms=0)
    world.raft.stop()
    with pytest.raises(
        FatalFault, match=r"metadata.version 99, but this release supports up to 27: run the release that set it"
    ):
        NodeWorld(disk=world.host.disk).start()


def test_a_snapshot_of_a_newer_metadata_version() -> None:
    world = NodeWorld().join()
    world.raft.stop()
    snapshot_id = SnapshotId(world.raft.log_end_offset, world.raft.epoch)
    data = encode_snapshot(
        [(FeatureLevelRecord(name="metadata.version", feature_level=99), 0)],
        epoch=snapshot_id.epoch,
        wall_ms=0,
        last_contained_log_timestamp_ms=0,
        kraft_version=1,
        voters=world.raft.voters,
    )
    world.host.disk.write(f"{METADATA_DIR}/{snapshot_id.file_name}", data)
    with pytest.raises(FatalFault, match=r"metadata.version 99"):
        NodeWorld(disk=world.host.disk).start()


def test_a_log_of_a_newer_kraft_version() -> None:
    world = NodeWorld().join()
    leading: Any = world.raft._leading
    core: Any = world.raft._core
    core.history.note = lambda offset, message: False
    leading.append_control([KRaftVersionRecord(kraft_version=2)])
    world.raft.stop()
    with pytest.raises(
        FatalFault, match=r"kraft.version 2, but this release supports 0 to 1: run the release that wrote it"
    ):
        NodeWorld(disk=world.host.disk).start()


def test_peers_of_another_cluster_end_a_node_that_has_never_joined() -> None:
    _, host, _ = started(THREE, response=VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    with pytest.raises(AssertionError, match=rf"belongs to another cluster than this node \({CLUSTER_ID}\): correct"):
        host.time.run_for(5_000)


def test_a_voter_alone_among_the_dead_asks_on_and_leads_nobody() -> None:
    node, host, peers = started(THREE)
    host.time.run_for(30_000)
    assert set(peers.requested) == {("b", 9093), ("c", 9093)}
    assert len(peers.requested) < 2_000
    assert node.epoch == 0, "questions alone do not raise the epoch"
    assert node.leader_id == -1
    assert not host.disk.exists(f"{METADATA_DIR}/quorum-state")


def test_an_observer_asks_the_bootstrap_servers() -> None:
    properties = {
        "process.roles": "broker",
        "listeners": "PLAINTEXT://localhost:9092",
        "controller.quorum.bootstrap.servers": "a:1,b:2",
    }
    node, host, peers = started(properties)
    host.time.run_for(2_000)
    assert set(peers.requested) == {("a", 1), ("b", 2)}
    assert not node.quorum.is_voter
    assert node.voters == VoterSet()


def test_a_controller_without_first_voters_joins_as_an_observer() -> None:
    host = MemoryHost(1)
    config = make_config({"controller.quorum.bootstrap.servers": "a:1,b:2"})
    formatted = ensure_formatted(host, config, cluster_id=CLUSTER_ID, initial_voters=VoterSet())
    node = RaftNode(host, config, MetadataStore(), formatted)
    node.start()
    host.time.run_for(2_000)
    assert not node.quorum.is_voter
    assert not node.is_leader


def test_each_peer_that_refuses_is_reported_once() -> None:
    _, host, peers = started(THREE, response=VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    host.time.run_for(20_000)
    assert len(peers.requested) > 4
    text = "of the metadata quorum responds with UNSUPPORTED_VERSION"
    assert sorted(text_of for text_of, _ in host.faults.reported) == [f"node 2 {text}", f"node 3 {text}"]


def test_the_state_is_at_least_in_the_last_epoch_of_the_log() -> None:
    stored = ElectionState(5, voted_id=2)
    assert state_at_least(None, 5) == ElectionState(5)
    assert state_at_least(stored, 4) is stored
    assert state_at_least(stored, 5) is stored
    assert state_at_least(stored, 6) == ElectionState(6)
