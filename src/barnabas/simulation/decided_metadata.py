"""The newest metadata that a controller has decided, for checkers: the newest image of any node, or, in ZooKeeper mode,
the image that the server's znodes describe.

In ZooKeeper mode each broker counts the offsets of its image itself. There the image is computed from the tree of the
server, and its offset is the last zxid.
"""

from __future__ import annotations

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.topics import NO_LEADER, PartitionImage, partition_from_record, partition_to_record
from barnabas.protocol.messages.records_metadata import PartitionRecord, TopicRecord
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.znodes import paths
from barnabas.znodes.tree_records import broker_records, tree_records
from barnabas.znodes.znode_tree import Znode, ZnodeTree
from barnabas.zookeeper.tree.database import Database


class DecidedMetadata:
    """The decided metadata of one cluster; the last one while no server or no node runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._image = EMPTY_IMAGE

    def image(self) -> MetadataImage:
        """Returns the newest decided image."""
        if self._cluster.zookeeper is None:
            nodes = self._cluster.nodes.values()
            images = [node.broker.metadata.image for node in nodes if node.is_running and node.broker]
            return max(images, key=lambda image: image.offset, default=EMPTY_IMAGE)
        server = self._cluster.zookeeper.server
        if server is not None and server.database.last_zxid > self._image.offset:
            self._image = _image_of(server.database)
        return self._image

    def leads(self, node: str, topic: str, index: int) -> bool:
        """Returns whether a broker leads a partition according to the last decision. A broker that was cut off or
        paused can still answer as the leader.
        """
        decided, broker = self.image().partition(topic, index), self._cluster.nodes[node].broker
        if decided is None or broker is None or decided.leader != broker.config.node_id:
            return False
        partition = broker.replicas.find(topic, index)
        return partition is not None and partition.leader_epoch == decided.leader_epoch


def _image_of(database: Database) -> MetadataImage:
    znodes = {path: Znode(node.data, node.version, node.czxid) for path, node in database.tree.nodes.items()}
    tree = ZnodeTree(znodes)
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in broker_records(tree).records:
        delta.replay(record)
    names: dict[bytes, str] = {}
    for record in tree_records(tree, lambda: bytes(16)).records:
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
        elif isinstance(record, PartitionRecord):
            topic_id, index = record.topic_id, record.partition_id
            if paths.state(names[topic_id], index) not in znodes:
                record = partition_to_record(topic_id, index, _without_state(record))
        delta.replay(record)
    return delta.apply(database.last_zxid, 0, 0)


def _without_state(record: PartitionRecord) -> PartitionImage:
    """Returns a partition that no controller has given a leader yet."""
    return partition_from_record(record)._replace(isr=(), leader=NO_LEADER, leader_epoch=-1, partition_epoch=-1)
