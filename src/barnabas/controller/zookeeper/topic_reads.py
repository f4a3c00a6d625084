"""A topic as read from its znodes: the records of its assignment and states, with the checks of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.controller.zookeeper.new_partitions import without_state
from barnabas.metadata.topics import PartitionImage, TopicImage, partition_to_record
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import RemoveTopicRecord, TopicRecord
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import PartitionState, ReplicaAssignment, TopicAssignment, check_state, decode_state
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ZnodeContent


class ReadState(NamedTuple):
    """The state of a partition, and its znode's data version."""

    state: PartitionState
    version: int


class ReadTopic(NamedTuple):
    """The content of a topic's znodes; partitions without a state znode are not in `states`."""

    name: str
    topic_id: bytes
    assignment: Mapping[int, ReplicaAssignment]
    states: Mapping[int, ReadState]

    def partitions(self, directory: bytes) -> tuple[PartitionImage, ...]:
        return tuple(self._partition(index, directory) for index in range(len(self.assignment)))

    def epochs(self) -> Mapping[tuple[bytes, int], int]:
        """Returns the epochs of the controllers that wrote the states."""
        return {(self.topic_id, index): read.state.controller_epoch for index, read in self.states.items()}

    def _partition(self, index: int, directory: bytes) -> PartitionImage:
        assigned = self.assignment[index]
        read = self.states.get(index)
        if read is None:
            return without_state(assigned, directory)
        return PartitionImage(
            assigned.replicas,
            read.state.isr,
            read.state.leader,
            read.state.leader_epoch,
            read.version,
            (directory,) * len(assigned.replicas),
            assigned.removing,
            assigned.adding,
            read.state.leader_recovery_state,
        )


def checked(path: str, assignment: TopicAssignment) -> Mapping[int, ReplicaAssignment]:
    """Returns the partitions. Raises ZnodeError for a topic without partitions, with holes in their numbers, or with a
    partition that has no replicas."""
    partitions = assignment.partitions
    missing = next((index for index in range(len(partitions)) if index not in partitions), None)
    if missing is not None:
        raise ZnodeError(path, f"has no partition {missing}, and has higher ones")
    if not partitions:
        raise ZnodeError(path, "has no partitions")
    empty = next((index for index, assigned in partitions.items() if not assigned.replicas), None)
    if empty is not None:
        raise ZnodeError(path, f"has no replicas of partition {empty}")
    return partitions


def read_state(name: str, index: int, znode: ZnodeContent, assigned: ReplicaAssignment) -> ReadState:
    """Returns a state. Raises ZnodeError for one that cannot be read, or names a broker that has no replica."""
    path = paths.state(name, index)
    state = decode_state(path, znode.data)
    check_state(path, state, assigned.replicas)
    return ReadState(state, znode.version)


def replacement(read: ReadTopic, known: TopicImage | None, directory: bytes) -> Iterator[Message]:
    """Yields the records that bring an image to what was read. Raises ZnodeError for a topic that has fewer partitions
    than before."""
    partitions = read.partitions(directory)
    if known is not None and known.topic_id != read.topic_id:
        yield RemoveTopicRecord(topic_id=known.topic_id)
        known = None
    if known is not None and len(known.partitions) > len(partitions):
        text = f"has {len(partitions)} partitions, there were {len(known.partitions)}"
        raise ZnodeError(paths.topic(read.name), text)
    if known is None:
        yield TopicRecord(name=read.name, topic_id=read.topic_id)
    for index, partition in enumerate(partitions):
        before = known.partitions[index] if known is not None and index < len(known.partitions) else None
        if before is not None and before.replicas == partition.replicas:
            partition = partition._replace(directories=before.directories)
        if partition != before:
            yield partition_to_record(read.topic_id, index, partition)
