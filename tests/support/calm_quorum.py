"""A quorum without faults, to which a test sends single requests."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.raft.messages import fetch_request
from barnabas.raft.node import RaftNode
from barnabas.raft.voters import VoterKey
from barnabas.simulation.worlds.quorum_places import CLUSTER_ID, Place
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World

DIRECTORY = b"x" * 16
STRANGER = VoterKey(9, DIRECTORY)


class CalmWorld:
    """A world without faults, some time after its first election."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(Plan(**{"seed": 3, "dynamic": True, **settings}))
        self.pass_time(1500)
        (self.leader,) = self.world._leaders()

    def pass_time(self, duration_ms: float) -> None:
        self.world.heap.run_until(self.world.heap.now + duration_ms)

    def followers(self) -> list[Place]:
        return [place for place in self.world._up() if place is not self.leader and place.is_controller]

    def call(self, place: Place, request: Message, *, wait_ms: int = 0) -> list[Any]:
        answers: list[Any] = []
        assert place.node is not None
        place.node.server.serve(request, request.VERSIONS[1], "CONTROLLER", answers.append)
        if wait_ms:
            self.pass_time(wait_ms)
        return answers

    def requested(self, place: Place, request: Message, *, wait_ms: int = 0) -> Any:
        (answer,) = self.call(place, request, wait_ms=wait_ms)
        return answer

    @property
    def epoch(self) -> int:
        assert self.leader.node is not None
        return self.leader.node.epoch

    @property
    def end_offset(self) -> int:
        assert self.leader.node is not None
        return self.leader.node.log_end_offset

    def propose(self) -> None:
        self.world.propose_to(self.leader)

    def fetch(
        self, *, offset: int, last_epoch: int | None = None, epoch: int | None = None, **more: Any
    ) -> FetchRequest:
        return fetch_request(
            CLUSTER_ID,
            STRANGER,
            epoch=self.epoch if epoch is None else epoch,
            offset=offset,
            last_epoch=self.epoch if last_epoch is None else last_epoch,
            **{"high_watermark": 1 << 62, **more},
        )


def partition_of(response: Any) -> Any:
    topics = response.responses if hasattr(response, "responses") else response.topics
    (topic,) = topics
    (partition,) = topic.partitions
    return partition


def node_of(place: Place) -> RaftNode:
    assert place.node is not None
    return place.node


def adding(place: Place, **more: Any) -> AddRaftVoterRequest:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host=place.address[0], port=place.address[1])
    settings: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "voter_id": place.node_id,
        "voter_directory_id": place.key.directory_id,
        "listeners": [listener],
        **more,
    }
    return AddRaftVoterRequest(**settings)


def removing(key: VoterKey, **more: Any) -> RemoveRaftVoterRequest:
    settings: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "voter_id": key.node_id,
        "voter_directory_id": key.directory_id,
        **more,
    }
    return RemoveRaftVoterRequest(**settings)
