"""Apache Kafka 4.1.0's answers to requests about its quorum, byte by byte, and those of a node in its place.

The recorded cluster has the voters 1, 2 and 3 with the directory ids 11.., 12.. and 13.. (in hex), a dynamic quorum.
"""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.controller_world import make_config

from barnabas.metadata.store import MetadataStore
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import request_class
from barnabas.raft.formatting import ensure_formatted
from barnabas.raft.log_checkpoint import CheckpointIdentity, LogCheckpoint, LogCheckpointFile
from barnabas.raft.node import RaftNode
from barnabas.raft.quorum import Candidate, Prospective
from barnabas.raft.quorum_state import ElectionState, encode_state
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.simulation.host import MemoryHost

DATA = Path(__file__).resolve().parents[1] / "data" / "wire" / "frames-4.1.0.json.gz"
CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMw"
VOTERS = VoterSet(
    tuple(
        Voter(VoterKey(n, bytes([0x10 + n] * 16)), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9570 + n),))
        for n in (1, 2, 3)
    )
)
QUORUM_STATE = "/data/__cluster_metadata-0/quorum-state"


def frames(api_key: int) -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt") as file:
        return [frame for frame in json.load(file) if frame["api_key"] == api_key]


def started(node_id: int, epoch: int = 0) -> RaftNode:
    """Returns a voter of that cluster, alone for now, that has seen this epoch."""
    config = make_config(
        {
            "node.id": str(node_id),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://127.0.0.1:{9570 + node_id}",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9571,127.0.0.1:9572,127.0.0.1:9573",
        }
    )
    host = MemoryHost(1)
    formatted = ensure_formatted(host, config, cluster_id=CLUSTER_ID, initial_voters=VOTERS)
    if epoch:
        host.disk.write(QUORUM_STATE, encode_state(ElectionState(epoch), kraft_version=1, voter_ids=[]))
        # The log has had no records yet.
        identity = CheckpointIdentity.of(node_id, CLUSTER_ID, formatted.metadata_directory_id)
        LogCheckpointFile(host.disk, "/data").create(identity, LogCheckpoint(quorum_epoch=epoch))
    node = RaftNode(host, config, MetadataStore(), formatted)
    node.start()
    return node


def leading(node_id: int, epoch: int) -> RaftNode:
    node = started(node_id, epoch - 1)
    quorum = node.quorum
    node._run(quorum.become_prospective)
    for role_type in (Prospective, Candidate):
        role = quorum.role
        assert isinstance(role, role_type)
        role.votes.granted.update({1, 2, 3})
        become_leader = partial(quorum.become_leader, node.log_end_offset)
        node._run(quorum.become_candidate if role_type is Prospective else become_leader)
    assert node.is_leader
    assert node.epoch == epoch
    return node


def answer(node: RaftNode, frame: dict[str, Any]) -> tuple[bytes, bytes]:
    """Returns (Barnabas's response body, Kafka's)."""
    data = memoryview(bytes.fromhex(frame["request_hex"]))[4:]
    api_key, version, _, _, position = decode_request_header(data)
    request, _ = codec.decode(request_class(api_key), version, data, position)
    answers: list[Message] = []
    node.server.serve(request, version, "CONTROLLER", answers.append)
    (response,) = answers
    recorded = bytes.fromhex(frame["response_hex"])[8 + response_header_version(api_key, version) :]
    return bytes(codec.encode(response, version)), recorded


def in_place(frame: dict[str, Any]) -> RaftNode:
    """Returns a node in the recorded node's state at the time of the request."""
    if frame["client_id"] == "golden-sweep":
        return leading(1, 3)
    if frame["api_key"] == 54:
        node = started(2, 1)
        node._run(lambda: node.quorum.become_follower(2, 3, VOTERS.voters[2].endpoints))
        return node
    node = started(frame["request"]["body"]["voterId"])
    if '"errorCode": 74' in json.dumps(frame["response"]):
        node._run(lambda: node.quorum.become_unattached(1))
    return node


@pytest.mark.parametrize(
    "frame",
    [frame for api_key in (52, 53, 54) for frame in frames(api_key)],
    ids=lambda frame: f"{frame['api_key']} {frame['version']} by {frame['client_id']}",
)
def test_voters_answer_as_kafkas(frame: dict[str, Any]) -> None:
    ours, kafkas = answer(in_place(frame), frame)
    assert ours == kafkas


@pytest.mark.parametrize(
    "frame",
    [frame for api_key in (80, 81) for frame in frames(api_key) if '"errorCode": 104' in json.dumps(frame["response"])],
    ids=lambda frame: str(frame["api_key"]),
)
def test_another_cluster_is_refused_as_kafka_does(frame: dict[str, Any]) -> None:
    ours, kafkas = answer(leading(1, 3), frame)
    assert ours == kafkas


@pytest.mark.parametrize("frame", [f for f in frames(55) if not f["request"]["body"]["topics"]])
def test_a_description_of_nothing(frame: dict[str, Any]) -> None:
    ours, kafkas = answer(leading(1, 3), frame)
    assert ours == kafkas


def test_an_update_is_answered_as_kafka_does() -> None:
    """The answers were recorded after node 1 had moved; node 3 leads in epoch 6."""
    (frame,) = frames(82)
    node = leading(3, 6)
    progress = node.quorum.role.progress  # type: ignore[union-attr]
    for voter in VOTERS:
        if voter.key.node_id != 3:
            progress.on_fetch(voter.key, node.log_end_offset, node.log_end_offset, 0)
    node._host.time.run_for(10)  # type: ignore[attr-defined]
    ours, kafkas = answer(node, frame)
    assert ours == kafkas
    assert node.voters.address_of(1, "CONTROLLER") == ("localhost", 9571)
