"""Liveness after the faults: a part of the cluster must make progress without the rest, then all of it must recover.

`core` chooses the part: a majority of the voters and of the brokers that has, for every partition, an eligible leader
and enough replicas for its min ISR. `what_is_missing` returns what a healed cluster still lacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import Final

from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.replication.partition import Role
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.timeline import partition_text
from barnabas.simulation.world import SECOND_US
from barnabas.storage.directories import root_of
from barnabas.znodes import paths

_STRUCK = frozenset(
    {FaultKind.KILL, FaultKind.STOP, FaultKind.POWER, FaultKind.LOSE_DISK, FaultKind.BROKEN_DISK, FaultKind.FULL_DISK}
)

#: The longest time from the request of a move until its decision, in us.
_DECIDED_LATE_US: Final = 60 * SECOND_US


def partitions_of(image: MetadataImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for topic in image.topics():
        for index, partition in enumerate(topic.partitions):
            yield TopicPartition(topic.name, index), partition


def core(
    cluster: Cluster,
    image: MetadataImage,
    active: Collection[Fault],
    random: Random,
    moves: Iterable[tuple[int, str, int, tuple[int, ...]]] = (),
) -> frozenset[str]:
    """Returns the names of the nodes that must make progress alone while the rest is down; all nodes if no smaller part
    must. `moves` are those that were requested (`Operator.moves`): a controller without a majority decides them late.
    """
    everybody = frozenset(cluster.nodes)
    if image is EMPTY_IMAGE:
        return everybody
    targets = [
        set(replicas)
        for at_us, topic, index, replicas in moves
        if cluster.world.now_us - at_us < _DECIDED_LATE_US and image.partition(topic, index) is not None
    ]
    least = cluster.layout.min_in_sync
    struck = {fault.node for fault in active if fault.kind in _STRUCK}
    brokers = [name for name in cluster.nodes if name.startswith("broker")]
    controllers = [name for name in cluster.nodes if name not in brokers]
    chosen = []
    for some in itertools.combinations(brokers, len(brokers) // 2 + 1):
        ids = {int(name.removeprefix("broker")) for name in some if _is_registered(cluster.nodes[name], image)}
        can_move = all(len(ids & target) >= min(least, len(target)) for target in targets)
        can_write = all(_can_make_progress(p, ids, least) for _, p in partitions_of(image))
        if struck.isdisjoint(some) and can_move and can_write:
            chosen.append(some)
    if not chosen:
        return everybody
    voters = random.sample(controllers, len(controllers) // 2 + 1) if controllers else []
    return frozenset({*random.choice(chosen), *voters})


def _is_registered(node: Node, image: MetadataImage) -> bool:
    """Returns whether the node runs and the controller has registered this incarnation: it then stays in its ISRs."""
    if not node.is_running or node.broker is None:
        return False
    registration = image.brokers.get(node.broker.config.node_id)
    return registration is not None and registration.epoch == node.broker.replicas.environment.broker_epoch()


def _can_make_progress(partition: PartitionImage, ids: set[int], least: int) -> bool:
    """Returns whether these brokers are enough now, and after the end of a move."""
    replicas = set(partition.replicas)
    places = (replicas, replicas - set(partition.removing_replicas))
    return bool(ids & set(partition.isr)) and all(len(ids & each) >= min(least, len(each)) for each in places)


def what_is_missing(cluster: Cluster, image: MetadataImage) -> str:
    """Returns the first problem of a cluster without faults and writers; "" if there is none.

    All programs must run, brokers must be registered and unfenced, every replica must be in its ISR, equal to the
    others and in the log directory that the metadata names, and no reassignment can be active.
    """
    for program in cluster.programs.values():
        if not program.is_running:
            return f"{program.name} does not run"
    for node in cluster.nodes.values():
        broker = None if node.broker is None else image.brokers.get(node.broker.config.node_id)
        if node.name.startswith("broker") and (broker is None or broker.fenced):
            return f"{node.name} is fenced or not registered"
    for tp, decided in partitions_of(image):
        if decided.adding_replicas or decided.removing_replicas:
            return f"{tp} still moves: {partition_text(decided)}"
        if set(decided.isr) != set(decided.replicas) or not decided.has_leader:
            return f"{tp} is not in sync: {partition_text(decided)}"
        problem = _difference(cluster, tp, decided)
        if problem:
            return problem
    return unfinished_request(cluster)


def unfinished_request(cluster: Cluster) -> str:
    """Returns a znode with a request that the controller has not completed."""
    server = None if cluster.zookeeper is None else cluster.zookeeper.server
    requests = (paths.PREFERRED_REPLICA_ELECTION, paths.REASSIGN_PARTITIONS)
    for path in () if server is None else server.database.tree.nodes:
        if path in requests or path.startswith(f"{paths.DELETE_TOPICS}/"):
            return f"{path} is still there"
    return ""


def _difference(cluster: Cluster, tp: TopicPartition, decided: PartitionImage) -> str:
    ends = set()
    for replica in decided.replicas:
        broker = cluster.nodes[f"broker{replica}"].broker
        if broker is None:
            return f"broker {replica} is not open yet"
        partition = broker.replicas.find(*tp)
        if partition is None or partition.leader_epoch != decided.leader_epoch:
            return f"broker {replica} does not know yet the state of {tp}"
        role = Role.LEADER if replica == decided.leader else Role.FOLLOWER
        if partition.role is not role:
            return f"broker {replica} is {partition.role.value} of {tp}, not {role.value}"
        ends |= {partition.log.log_end_offset, partition.high_watermark}
        directory = broker.logs.roots.id_of(root_of(partition.log.directory))
        if directory not in (ZERO_UUID, decided.directory_of(replica)) and cluster.zookeeper is None:
            return f"broker {replica} has {tp} in another log directory than the metadata says"
    return f"replicas of {tp} end at {sorted(ends)}" if len(ends) > 1 else ""
