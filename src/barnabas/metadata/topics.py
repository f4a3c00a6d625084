"""Topics and partitions as values, and the delta that builds new ones from metadata records.

A topic's partitions are a tuple indexed by partition id: Kafka's controller numbers them 0..n-1, and a tuple is the
fastest to read. In ZooKeeper mode a broker can know a partition before those with lower ids: their places hold
`UNKNOWN_PARTITION`. A delta keeps only what its records changed, and the cost of `apply` depends only on these changes,
plus one copy of the tuple per changed topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from barnabas.decisions.partition import (
    FIRST_UNRESERVED_DIRECTORY,
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    UNKNOWN_PARTITION,
    PartitionImage,
)
from barnabas.protocol.messages.records_metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = [
    "FIRST_UNRESERVED_DIRECTORY",
    "LOST_DIRECTORY",
    "MIGRATING_DIRECTORY",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
    "UNASSIGNED_DIRECTORY",
    "UNKNOWN_PARTITION",
    "PartitionImage",
    "TopicDelta",
    "TopicImage",
    "TopicsById",
    "TopicsByName",
    "TopicsDelta",
    "partition_from_record",
    "partition_to_record",
]


def partition_from_record(record: PartitionRecord) -> PartitionImage:
    replicas = tuple(record.replicas)
    directories = tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(replicas)
    assert len(directories) == len(replicas), "a directory for each replica, or for none"
    return PartitionImage(
        replicas,
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        directories,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


def partition_to_record(topic_id: bytes, partition_id: int, image: PartitionImage) -> PartitionRecord:
    """Returns the record that creates this partition as it is. Empty ELRs are omitted, as Kafka does."""
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(image.replicas),
        isr=list(image.isr),
        removing_replicas=list(image.removing_replicas),
        adding_replicas=list(image.adding_replicas),
        leader=image.leader,
        leader_recovery_state=image.leader_recovery_state,
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
        directories=list(image.directories),
        eligible_leader_replicas=list(image.elr) or None,
        last_known_elr=list(image.last_known_elr) or None,
    )


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...] = ()

    @property
    def has_elr(self) -> bool:
        """Returns whether any partition has an ELR or a last known leader."""
        for partition in self.partitions:  # noqa: SIM110
            if partition.elr or partition.last_known_elr:
                return True
        return False


class TopicDelta:
    """The changes of one topic since `base` (None: it is new)."""

    __slots__ = ("base", "changed_partitions", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes, base: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        #: Partition id -> the changed partition, in the order of the first changes.
        self.changed_partitions: dict[int, PartitionImage] = {}

    @property
    def created(self) -> bool:
        return self.base is None

    @property
    def has_elr(self) -> bool:
        """Returns whether any changed partition has an ELR or a last known leader."""
        return any(partition.elr or partition.last_known_elr for partition in self.changed_partitions.values())

    def partition(self, partition_id: int) -> PartitionImage:
        """Returns the current state of the partition. Raises KeyError if it does not exist."""
        changed = self.changed_partitions.get(partition_id)
        if changed is not None:
            return changed
        if self.base is None or not 0 <= partition_id < len(self.base.partitions):
            raise KeyError(f"{self.name}-{partition_id}")
        return self.base.partitions[partition_id]

    def partition_before(self, partition_id: int) -> PartitionImage | None:
        if self.base is None or partition_id >= len(self.base.partitions):
            return None
        return self.base.partitions[partition_id]

    def replay_change(self, record: PartitionChangeRecord) -> None:
        self.changed_partitions[record.partition_id] = self.partition(record.partition_id).merge(record)

    def replay_clear_elr(self) -> None:
        for partition_id in self._partition_ids():
            partition = self.partition(partition_id)
            if partition.elr or partition.last_known_elr:
                self.changed_partitions[partition_id] = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )

    def _partition_ids(self) -> list[int]:
        before = len(self.base.partitions) if self.base is not None else 0
        return sorted(set(range(before)) | set(self.changed_partitions))

    def apply(self) -> TopicImage:
        partitions = list(self.base.partitions) if self.base is not None else []
        for partition_id in sorted(self.changed_partitions):
            partition = self.changed_partitions[partition_id]
            if partition_id < len(partitions):
                partitions[partition_id] = partition
            else:
                assert partition_id == len(partitions), f"hole before {self.name}-{partition_id}"
                partitions.append(partition)
        return TopicImage(self.name, self.topic_id, tuple(partitions))


TopicsByName = Map[str, TopicImage]
TopicsById = Map[bytes, TopicImage]
#: The ids of topics that have an ELR or a last known leader. 50,000 topics cannot be asked in one turn of the loop.
TopicsWithElr = Map[bytes, None]


class Topics(NamedTuple):
    """The topics of an image."""

    by_name: TopicsByName
    by_id: TopicsById
    with_elr: TopicsWithElr


class TopicsDelta:
    """The changes of the topics. `changed` and `deleted` are keyed by topic id, in the order of the records."""

    __slots__ = ("_by_id", "_by_name", "_new_names", "_with_elr", "changed", "deleted")

    def __init__(self, base: Topics) -> None:
        self._by_name, self._by_id, self._with_elr = base
        self._new_names: dict[str, bytes] = {}
        self.changed: dict[bytes, TopicDelta] = {}
        self.deleted: dict[bytes, TopicImage] = {}

    def replay_topic(self, record: TopicRecord) -> None:
        topic_id = record.topic_id
        assert topic_id not in self._by_id, f"the id of topic {record.name} is taken"
        assert topic_id not in self.changed, f"the id of topic {record.name} is taken"
        assert self.topic_id_of(record.name) is None, f"topic {record.name} exists"
        self.changed[topic_id] = TopicDelta(record.name, topic_id, None)
        self._new_names[record.name] = topic_id

    def replay_partition(self, record: PartitionRecord) -> None:
        self._touch(record.topic_id).changed_partitions[record.partition_id] = partition_from_record(record)

    def replay_partitions(self, topic_id: bytes, partitions: Mapping[int, PartitionImage]) -> None:
        """Adds partitions to a topic, as a PartitionRecord for each of them would."""
        self._touch(topic_id).changed_partitions.update(partitions)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        self._touch(record.topic_id).replay_change(record)

    def replay_remove(self, record: RemoveTopicRecord) -> str:
        """Applies a deletion. Returns the name of the topic, so that the caller can delete its configs."""
        topic_id = record.topic_id
        delta = self.changed.pop(topic_id, None)
        base = self._by_id.get(topic_id)
        if delta is None and base is None:
            raise KeyError(f"no topic with id {topic_id.hex()}")
        name = delta.name if delta is not None else base.name if base is not None else ""
        self._new_names.pop(name, None)
        if base is not None:
            self.deleted[topic_id] = base
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clears the ELRs of one topic, or of all topics if the name is empty (KIP-966)."""
        if record.topic_name:
            topic_id = self.topic_id_of(record.topic_name)
            if topic_id is None:
                raise KeyError(f"no topic {record.topic_name}")
            self._touch(topic_id).replay_clear_elr()
            return
        unchanged = (each for each in self._with_elr if each not in self.changed and each not in self.deleted)
        for topic_id in [*self.changed, *sorted(unchanged)]:
            self._touch(topic_id).replay_clear_elr()

    def rebased(self, base: Topics) -> TopicsDelta:
        """Returns the same changes of later topics, in which the topics that they change are as they were."""
        assert not self.deleted, "deletions are decided in one turn"
        for topic_id, delta in self.changed.items():
            assert base.by_id.get(topic_id) is delta.base, f"topic {delta.name} has changed"
        rebased = TopicsDelta(base)
        rebased._new_names = self._new_names
        rebased.changed = self.changed
        return rebased

    def topic_id_of(self, name: str) -> bytes | None:
        """Returns the id of the topic that has this name now."""
        new = self._new_names.get(name)
        if new is not None:
            return new
        base = self._by_name.get(name)
        return base.topic_id if base is not None and base.topic_id not in self.deleted else None

    def _touch(self, topic_id: bytes) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            base = self._by_id.get(topic_id)
            if base is None or topic_id in self.deleted:
                raise KeyError(f"no topic with id {topic_id.hex()}")
            delta = self.changed[topic_id] = TopicDelta(base.name, topic_id, base)
        return delta

    def replay_difference(self, by_id: TopicsById) -> None:
        """Records all differences between the base and these topics, from a snapshot that replaces the base.

        They are recorded in the order of topic ids, because the order of a map differs between processes.
        """
        for topic_id in sorted(self._by_id):
            if topic_id not in by_id:
                self.deleted[topic_id] = self._by_id[topic_id]
        for topic_id in sorted(by_id):
            topic = by_id[topic_id]
            before = self._by_id.get(topic_id)
            if before == topic:
                continue
            delta = self.changed[topic_id] = TopicDelta(topic.name, topic_id, before)
            for partition_id, partition in enumerate(topic.partitions):
                if delta.partition_before(partition_id) != partition:
                    delta.changed_partitions[partition_id] = partition

    def removed_names(self) -> list[str]:
        return [topic.name for topic in self.deleted.values()]

    def added_names(self) -> list[str]:
        return [delta.name for delta in self.changed.values() if delta.created]

    def apply(self) -> Topics:
        if not self.changed and not self.deleted:
            return Topics(self._by_name, self._by_id, self._with_elr)
        by_name, by_id, with_elr = self._by_name.mutate(), self._by_id.mutate(), self._with_elr.mutate()
        for topic_id, topic in self.deleted.items():
            by_id.pop(topic_id)
            by_name.pop(topic.name)
            with_elr.pop(topic_id, None)
        for topic_id, delta in self.changed.items():
            topic = delta.apply()
            by_id[topic_id] = topic
            by_name[topic.name] = topic
            if topic_id in self._with_elr:
                if not topic.has_elr:
                    with_elr.pop(topic_id, None)
            elif delta.has_elr:
                with_elr[topic_id] = None
        return Topics(by_name.finish(), by_id.finish(), with_elr.finish())
