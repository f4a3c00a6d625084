"""Replicas that moved to other brokers, and whose removal this broker has missed.

A controller ends such a replica with one StopReplica. If the controller fails before the request arrives, for example
because this broker is cut off, no other controller knows of the replica. So the first UpdateMetadata of a controller to
a registration starts a comparison: a replica is removed if the image does not assign it to this broker, and the znode
of its topic does not either. In Kafka 3.9.1 it stays.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.zookeeper.store_steps import Steps, pause, read
from barnabas.common.host import Timers
from barnabas.metadata.store import MetadataStore
from barnabas.replication.partition import Partition, Role
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import decode_topic
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply, ZnodeStore

#: The pauses before the looks: the rest of the controller's requests follows the first one, later where there are many
#: partitions.
_PAUSES_MS: Final = (1_000, 9_000, 50_000)


class MovedReplicas:
    """The replicas of one broker, compared with the assignments."""

    def __init__(
        self, node_id: int, store: ZnodeStore, timers: Timers, metadata: MetadataStore, replicas: ReplicaManager
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._timers = timers
        self._metadata = metadata
        self._replicas = replicas

    def remove(self) -> Steps[None]:
        """Removes the replicas that are not assigned to this broker, with their logs."""
        for pause_ms in _PAUSES_MS:
            yield from pause(self._timers, pause_ms)
            for partition in [each for each in self._replicas.partitions() if self._has_moved(each)]:
                yield from self._remove(partition)

    def _remove(self, partition: Partition) -> Steps[None]:
        topic, index = partition.topic_partition
        path, epoch = paths.topic(topic), partition.leader_epoch
        reply = yield from read(self._store, path)
        is_same = self._replicas.find(topic, index) is partition and partition.leader_epoch == epoch
        if is_same and self._has_moved(partition) and self._is_assigned_elsewhere(path, reply, partition):
            self._replicas.remove(partition)

    def _has_moved(self, partition: Partition) -> bool:
        """Returns whether the image assigns the partition to other brokers only."""
        topic = self._metadata.image.topics_by_id.get(partition.topic_id)
        index = partition.topic_partition.partition
        if topic is None or index >= len(topic.partitions) or partition.role is Role.OFFLINE:
            return False
        replicas = topic.partitions[index].replicas
        return bool(replicas) and self._node_id not in replicas

    def _is_assigned_elsewhere(self, path: str, reply: ReadReply, partition: Partition) -> bool:
        if reply.znode is None:
            return False
        try:
            topic = decode_topic(path, reply.znode.data)
        except ZnodeError:
            return False
        assigned = topic.partitions.get(partition.topic_partition.partition)
        return topic.topic_id == partition.topic_id and assigned is not None and self._node_id not in assigned.replicas
