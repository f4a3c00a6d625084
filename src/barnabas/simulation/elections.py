"""The decisions of the controllers as lines of the time line: leaders, ISRs and ELRs of partitions, fenced brokers, and
which controller is active. Adding these lines does not change a run.
"""

from __future__ import annotations

from barnabas.metadata.image import MetadataImage
from barnabas.replication.partition import Partition
from barnabas.simulation.facts import DECIDED, BrokerFenced, ControllerElected, PartitionDecided, TopicDeleted
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State, changed_partitions
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.timeline import partition_text
from barnabas.simulation.world import World
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import decode_controller


class Elections:
    """Adds the lines. It is called like a checker and raises nothing. It must precede the checkers that raise, so that
    the time line contains a wrong decision.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._world: World = cluster.world
        self._controllers = frozenset(name for name in cluster.nodes if not name.startswith("broker"))
        if not self._controllers:
            self._controllers = frozenset(cluster.nodes)
        self._epoch = -1
        #: The creation of the znode of the last controller.
        self._claim = -1

    # -- the active controller

    def check(self, cluster: Cluster) -> None:
        if cluster.zookeeper is not None:
            self._check_znode(cluster)
            return
        for node in cluster.dirty:
            broker = node.broker
            if broker is not None and node.name in self._controllers:
                raft = broker.quorum.raft
                if raft.epoch > self._epoch and raft.is_leader:
                    self._epoch = raft.epoch
                    self._note_controller(node.name, f"in epoch {raft.epoch}")

    def _check_znode(self, cluster: Cluster) -> None:
        server = None if cluster.zookeeper is None else cluster.zookeeper.server
        if server is None:
            return
        found = server.database.tree.nodes.get(paths.CONTROLLER)
        claim = -1 if found is None else found.czxid
        if claim != self._claim:
            self._claim = claim
            if found is None:
                self._world.observe(DECIDED, "there is no controller", ControllerElected(""))
            else:
                broker_id = decode_controller(paths.CONTROLLER, found.data).broker_id
                self._note_controller(f"broker{broker_id}", f"since zxid {claim}")

    def _note_controller(self, node: str, since: str) -> None:
        self._world.observe(DECIDED, f"{node} is the active controller {since}", ControllerElected(node))

    # -- decisions

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Does nothing: replicas decide nothing."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        if now.brokers is not before.brokers:
            self._note_brokers(before, now)
        if now.topics_by_id is not before.topics_by_id:
            self._note_topics(before, now)

    def _note_brokers(self, before: MetadataImage, now: MetadataImage) -> None:
        for broker_id in sorted({*before.brokers, *now.brokers}):
            earlier, decided = before.brokers.get(broker_id), now.brokers.get(broker_id)
            was_fenced = earlier is None or earlier.fenced
            is_fenced = decided is None or decided.fenced
            if was_fenced is not is_fenced:
                text = f"broker {broker_id} is {'fenced' if is_fenced else 'unfenced'}"
                self._world.observe(DECIDED, text, BrokerFenced(broker_id, is_fenced))

    def _note_topics(self, before: MetadataImage, now: MetadataImage) -> None:
        deleted = [topic.name for topic_id, topic in before.topics_by_id.items() if topic_id not in now.topics_by_id]
        for name in sorted(deleted):
            self._world.observe(DECIDED, f"topic {name} is deleted", TopicDeleted(name))
        changed = {str(key[0]): (earlier, decided) for key, earlier, decided in changed_partitions(before, now)}
        for name, (earlier, decided) in sorted(changed.items()):
            text = partition_text(decided)
            if decided.is_known and (earlier is None or partition_text(earlier) != text):
                fact = PartitionDecided(name, decided.leader, decided.leader_epoch, decided.isr, decided.replicas)
                self._world.observe(DECIDED, f"{name}: {text}", fact)
