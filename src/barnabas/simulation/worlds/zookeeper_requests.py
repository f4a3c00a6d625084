"""Checks which controller requests brokers in ZooKeeper mode accept, and that their roles follow from these requests.
Some requests are delivered a second time and late, as if they had waited in a connection that the controller abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from barnabas.broker.assembly import Broker
from barnabas.broker.zookeeper.controller_feed import EPOCH_DURING_DELETE
from barnabas.common.errors import ErrorCode
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US

_GHOST_CHANCES = {"update_metadata": 0.1, "leader_and_isr": 0.1, "stop_replica": 0.6}
_GHOST_DELAYS_MS = (20, 200, 1_500)


class _NodeProcess:
    """The requests that one process of a broker accepted."""

    def __init__(self, node: Node, broker: Broker) -> None:
        self.name = node.name
        self.broker = broker
        self._world = node.world
        self._process = node.machine.process
        self._random = node.world.stream("ghosts")
        self.controller_epoch = 0
        #: (topic, partition, leader epoch) of LeaderAndIsr.
        self.roles: set[tuple[str, int, int]] = set()
        self.problem: str | None = None
        feed = broker.services.zookeeper.feed
        for method in _GHOST_CHANCES:
            setattr(feed, method, self._watched(method, getattr(feed, method)))

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any, *rest: Any) -> Generator[Any, Any, Any]:
            if name == "leader_and_isr":
                for topic in request.topic_states:
                    for row in topic.partition_states:
                        self.roles.add((topic.topic_name, row.partition_index, row.leader_epoch))
            if self._random.random() < _GHOST_CHANCES[name] and not _is_deletion(request):
                delay_us = self._random.choice(_GHOST_DELAYS_MS) * MILLISECOND_US
                self._world.after(delay_us, lambda: self._redeliver(call, request, *rest), self._process, "ghost")
            before = self.broker.replicas.environment.broker_epoch()
            epochs = self._epochs(request) if name == "stop_replica" else {}
            response = yield from method(request, *rest)
            if response.error_code == ErrorCode.NONE:
                self._accepted(name, request, before)
                self._check_stops(request, response, epochs)
            return response

        return call

    def _redeliver(self, call: Callable[..., Any], request: Any, *rest: Any) -> None:
        """Delivers a request once more. A LeaderAndIsr would make a replica again that was deleted in between: nobody
        knows its epoch any more (in Kafka neither). An UpdateMetadata would bring back an earlier list of live brokers,
        which has no epoch, until the controller sends the next one (in Kafka too).
        """
        if isinstance(request, UpdateMetadataRequest):
            live = {row.id for row in request.live_brokers}
            if live != self.broker.metadata.image.brokers.keys():
                return
        if isinstance(request, LeaderAndIsrRequest):
            for topic in request.topic_states:
                for row in topic.partition_states:
                    if self.broker.replicas.find(topic.topic_name, row.partition_index) is None:
                        return
        for _ in call(request, *rest):
            pass  # all slices in one turn

    def _epochs(self, request: StopReplicaRequest) -> dict[tuple[str, int], int]:
        """Returns the leader epochs of the replicas that a request stops."""
        found = {}
        for topic in request.topic_states:
            for row in topic.partition_states:
                partition = self.broker.replicas.find(topic.topic_name, row.partition_index)
                if partition is not None and partition.role is not Role.OFFLINE:
                    found[topic.topic_name, row.partition_index] = partition.leader_epoch
        return found

    def _check_stops(self, request: Any, response: Any, epochs: dict[tuple[str, int], int]) -> None:
        if not epochs:
            return
        wanted = {
            (topic.topic_name, row.partition_index): row.leader_epoch
            for topic in request.topic_states
            for row in topic.partition_states
        }
        for row in response.partition_errors:
            place = (row.topic_name, row.partition_index)
            if row.error_code == ErrorCode.NONE and 0 <= wanted[place] < epochs.get(place, -1):
                self.problem = f"an old StopReplica is obeyed: {place} on {self.name}"

    def _accepted(self, name: str, request: Any, broker_epoch: int) -> None:
        if -1 < request.broker_epoch < broker_epoch:
            self.problem = f"a request for an earlier incarnation is obeyed: {name} on {self.name}"
        if request.controller_epoch < self.controller_epoch:
            self.problem = f"an old controller is obeyed: {name} on {self.name}"
        self.controller_epoch = max(self.controller_epoch, request.controller_epoch)


def _is_deletion(request: Any) -> bool:
    """Returns whether a request deletes a topic. Such a request does not distinguish the topic from the next one with
    its name, so it must not arrive twice (as in Kafka).
    """
    return isinstance(request, StopReplicaRequest) and any(
        row.leader_epoch == EPOCH_DURING_DELETE for topic in request.topic_states for row in topic.partition_states
    )


class AcceptedRequests:
    """Checks the accepted requests, and as a `ReplicaChecker` the roles."""

    def __init__(self) -> None:
        self._processes: dict[str, _NodeProcess] = {}

    def check(self, cluster: Cluster) -> None:
        """Begins to watch new processes. Raises Violation."""
        for node in cluster.dirty:
            current = self._processes.get(node.name)
            if node.broker is not None and (current is None or current.broker is not node.broker):
                current = self._processes[node.name] = _NodeProcess(node, node.broker)
            if current is not None and current.problem is not None:
                raise Violation(current.problem)

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        if now.role not in (Role.LEADER, Role.FOLLOWER) or (before is not None and before[:2] == now[:2]):
            return
        current, place = self._processes.get(node.name), partition.topic_partition
        if current is not None and current.broker is node.broker and (*place, now.leader_epoch) not in current.roles:
            raise Violation(f"a role that no LeaderAndIsr gave: {place} on {node.name} in epoch {now.leader_epoch}")

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Does nothing: roles come by requests."""
