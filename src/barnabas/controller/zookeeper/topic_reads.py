"""A topic as read from its znodes: checks its assignment and states, and computes the change of the image."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.controller.zookeeper.new_partitions import without_state
from barnabas.controller.zookeeper.record_store import ReadPartitions
from barnabas.metadata.topics import MIGRATING_DIRECTORY, PartitionImage, TopicImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import RemoveTopicRecord, TopicRecord
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import PartitionState, ReplicaAssignment, TopicAssignment, check_state, decode_state
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ZnodeContent


class TopicReading:
    """A topic whose assignment is read, and whose states are added one by one. Partitions without a state znode have no
    state in the image either.
    """

    def __init__(self, name: str, assignment: TopicAssignment, version: int) -> None:
        self.name = name
        self.assignment = assignment
        #: The data version of the assignment's znode.
        self.version = version
        #: The invalid states, with the data versions of their znodes.
        self.broken: list[tuple[ZnodeError, int]] = []
        #: The epochs of the controllers that wrote the states.
        self.epochs: dict[int, int] = {}
        self._partitions: dict[int, PartitionImage] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._partitions) == len(self.assignment.partitions)

    def add(self, index: int, znode: ZnodeContent | None) -> None:
        """Adds the state of a partition from its znode; `None` stands for a znode that does not exist."""
        assigned = self.assignment.partitions[index]
        partition = without_state(assigned, MIGRATING_DIRECTORY)
        if znode is not None:
            try:
                state = read_state(self.name, index, znode, assigned)
            except ZnodeError as error:
                self.broken.append((error, znode.version))
            else:
                partition = partition._replace(
                    isr=state.isr,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=znode.version,
                    leader_recovery_state=state.leader_recovery_state,
                )
                self.epochs[index] = state.controller_epoch
        self._partitions[index] = partition

    def change(self, topic_id: bytes, known: TopicImage | None) -> tuple[list[Message], ReadPartitions]:
        """Returns the change from an image to the content that was read: the records of the topic itself, and the
        partitions that differ. Raises ZnodeError for a topic that has fewer partitions than before.
        """
        records: list[Message] = []
        if known is not None and known.topic_id != topic_id:
            records.append(RemoveTopicRecord(topic_id=known.topic_id))
            known = None
        before = () if known is None else known.partitions
        count = len(self._partitions)
        if len(before) > count:
            raise ZnodeError(paths.topic(self.name), f"has {count} partitions, but had {len(before)} before")
        if known is None:
            records.append(TopicRecord(name=self.name, topic_id=topic_id))
        changed: dict[int, PartitionImage] = {}
        for index, was in enumerate(before):
            partition = self._partitions[index]
            if was.replicas == partition.replicas:
                partition = partition._replace(directories=was.directories)
            if partition != was:
                changed[index] = partition
        changed.update((index, self._partitions[index]) for index in range(len(before), count))
        return records, ReadPartitions(topic_id, changed, self.epochs)


def checked(path: str, assignment: TopicAssignment) -> Mapping[int, ReplicaAssignment]:
    """Returns the partitions. Raises ZnodeError for a topic without partitions, with holes in their numbers, or with a
    partition that has no replicas."""
    partitions = assignment.partitions
    missing = next((index for index in range(len(partitions)) if index not in partitions), None)
    if missing is not None:
        raise ZnodeError(path, f"has no partition {missing}, but has higher ones")
    if not partitions:
        raise ZnodeError(path, "has no partitions")
    empty = next((index for index, assigned in partitions.items() if not assigned.replicas), None)
    if empty is not None:
        raise ZnodeError(path, f"has no replicas of partition {empty}")
    return partitions


def read_state(name: str, index: int, znode: ZnodeContent, assigned: ReplicaAssignment) -> PartitionState:
    """Returns a state. Raises ZnodeError for one that cannot be read, or whose replicas are not all assigned."""
    path = paths.state(name, index)
    state = decode_state(path, znode.data)
    check_state(path, state, assigned.replicas)
    return state
