"""The time after a SIGKILL until all survivors know the new leaders: three nodes with both roles, one killed at a time.

A round creates a topic of one partition with its leader on the node that the round needs, kills one node, and sends raw
Metadata and DescribeQuorum requests to every survivor every few milliseconds, over connections that were open before.
It is over when all of them report a live leader of the partition and an ISR without the dead broker and, if the active
controller was killed, a new leader of the quorum.

    PYTHONPATH=tools python -m tests.support.kill_times [ROUNDS]    all three kinds, 50 rounds each by default
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import time
from pathlib import Path

from tests.support.process_nodes import Address, Nodes, call, describe_quorum, until

from barnabas.common.types import METADATA_TOPIC
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

#: The victims: the leader of the partition, the active controller, or a node that is both.
KINDS = ("leader", "controller", "both")
ROLES = dict.fromkeys((1, 2, 3), "broker,controller")
_POLL_S = 0.005
_LIMIT_S = 60.0


class RequestClient:
    """An open connection, with one request at a time, answered within the poll or later."""

    def __init__(self, address: Address) -> None:
        self._link = socket.create_connection(address, timeout=_LIMIT_S)
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._link.makefile("rb")

    def call(self, request: Message, version: int) -> Message:
        key = request.API_KEY
        assert key is not None
        header = RequestHeader(request_api_key=key, request_api_version=version, client_id="kill-times")
        frame = codec.encode(header, request_header_version(key, version))
        codec.encode_into(request, version, frame)
        self._link.sendall(len(frame).to_bytes(4, "big") + frame)
        data = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        answer, _ = codec.decode(response_class(key), version, data, 4 + response_header_version(key, version))
        return answer

    def close(self) -> None:
        self._stream.close()
        self._link.close()


class Survivor:
    """A node that survives, and its reports."""

    def __init__(self, nodes: Nodes, node_id: int) -> None:
        self.node_id = node_id
        self._broker = RequestClient(nodes[node_id].address)
        self._controller = RequestClient(nodes[node_id].controller_address)

    def knows(self, topic: str, victim: int, *, quorum: bool) -> bool:
        """Returns whether it reports a new leader of the partition and, if `quorum`, a new leader of the quorum."""
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        answer = self._broker.call(wanted, 12)
        assert isinstance(answer, MetadataResponse)
        partition = answer.topics[0].partitions[0]
        if partition.leader_id in (-1, victim) or victim in partition.isr_nodes:
            return False
        return not quorum or self._leader() not in (-1, victim)

    def _leader(self) -> int:
        rows = [DescribeQuorumRequest.PartitionData(partition_index=0)]
        request = DescribeQuorumRequest(
            topics=[DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=rows)]
        )
        answer = self._controller.call(request, 2)
        return int(answer.topics[0].partitions[0].leader_id)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._broker.close()
        self._controller.close()


class KillTimes:
    """A cluster that loses one node per round and gets it back."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._round = 0

    def measure(self, kind: str) -> float:
        """Returns the seconds from the kill until all survivors know the new leaders."""
        nodes = self._nodes
        controller = nodes.leader()
        others = [node.node_id for node in nodes.all if node.node_id != controller]
        self._round += 1
        leader = controller if kind == "both" else others[self._round % 2]
        victim = leader if kind == "leader" else controller
        topic = f"round-{self._round}"
        self._create(topic, leader, controller)
        survivors = [Survivor(nodes, node.node_id) for node in nodes.all if node.node_id != victim]
        try:
            killed_at = time.monotonic()
            nodes[victim].kill()
            took_s = self._await(survivors, topic, victim, killed_at, quorum=kind != "leader")
        finally:
            for survivor in survivors:
                survivor.close()
        nodes.start([victim])
        until("a full ISR", lambda: self._is_whole(topic))
        self._delete(topic)
        return took_s

    def _await(self, survivors: list[Survivor], topic: str, victim: int, killed_at: float, *, quorum: bool) -> float:
        ignorant = list(survivors)
        while True:
            begun = time.monotonic()
            ignorant = [each for each in ignorant if not each.knows(topic, victim, quorum=quorum)]
            now = time.monotonic()
            if not ignorant:
                return now - killed_at
            assert now < killed_at + _LIMIT_S, f"survivors {[each.node_id for each in ignorant]} know no new leader"
            time.sleep(max(0.0, begun + _POLL_S - now))

    def _create(self, topic: str, leader: int, controller: int) -> None:
        replicas = [leader, *(node.node_id for node in self._nodes.all if node.node_id != leader)]
        assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        entry = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        request = CreateTopicsRequest(topics=[entry], timeout_ms=60_000)
        code = call(self._nodes[controller].address, request, 7, CreateTopicsResponse).topics[0].error_code
        assert code == 0, f"{topic} could not be created: {code}"
        until("a full ISR", lambda: self._is_whole(topic, leader))

    def _delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=topic)], timeout_ms=60_000)
        with contextlib.suppress(OSError):
            call(self._nodes.all[0].address, request, 6, DeleteTopicsResponse)

    def _is_whole(self, topic: str, leader: int | None = None) -> bool:
        """Returns whether every node reports the topic and all brokers, and all voters follow the quorum."""
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        for node in self._nodes.all:
            told = call(node.address, wanted, 12, MetadataResponse)
            if told.topics[0].error_code or len(told.brokers) < len(self._nodes.all):
                return False
            partition = told.topics[0].partitions[0]
            if len(partition.isr_nodes) < len(self._nodes.all) or leader not in (None, partition.leader_id):
                return False
        states = describe_quorum(self._nodes[self._nodes.leader()].controller_address).current_voters
        return len({state.log_end_offset for state in states}) == 1


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(Path(folder), ROLES)
        try:
            nodes.start()
            times = KillTimes(nodes)
            print(
                f"{'killed':<11} {'rounds':>6} {'min':>7} {'median':>7} {'p99':>7} {'max':>7}  seconds until all know"
            )
            for kind in KINDS:
                took = [times.measure(kind) for _ in range(rounds)]
                figures = (min(took), percentile(took, 0.5), percentile(took, 0.99), max(took))
                print(f"{kind:<11} {rounds:>6} " + " ".join(f"{figure:7.3f}" for figure in figures), flush=True)
        finally:
            nodes.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
