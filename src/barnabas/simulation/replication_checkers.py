"""What must hold in replicated partitions at every moment, looked at on the nodes' own objects (names as in the TLA+
models of KIP-966):

    Committed     what any leader's HW has passed never changes and never goes: the same batch at the same offset on
                  every replica whose HW passes it (LogMatching up to the HW), on every leader (LeaderCompleteness), and
                  whoever is in the ISR or ELR has all of it (LeaderCandidateCompleteness)
    OneLeader     in one leader epoch one broker leads; its log knows that epoch before its first append (G3)
    Offsets       log start <= HW <= LEO; a replica's HW and a leader's LEO never go back within an epoch
    Decisions     what the controller says: `replication_decisions`
    Quorum        the ISR that the controller knows is within the one its leader waits for (ReplicationQuorumSuperset)

Only replicas in which something changed are looked at. An unclean election may lose all of it: a partition that had
one is left alone from then on, and `UncleanElections` tells which these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

from barnabas.common.types import TopicPartition
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.topics import RECOVERING, PartitionImage
from barnabas.records.batch import iter_headers
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.cluster import Cluster
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.world import Life
from barnabas.storage.log import Log

#: One life of a partition: its name and its topic's id.
Key = tuple[TopicPartition, bytes]


class State(NamedTuple):
    """One replica after an event. A replica that was removed or closed comes back as another `Partition`."""

    role: Role
    leader_epoch: int
    log: Log
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class Look(Protocol):
    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Something in it is not what it was. Raises Violation."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """The controller has decided something. Raises Violation."""


class Replicas:
    """Finds what changed, and lets others look at it. Decisions are seen at node `controller`, or, without one, at
    whichever node has the newest of them."""

    def __init__(self, controller: str | None, looks: Sequence[Look]) -> None:
        self._controller = controller
        self._looks = tuple(looks)
        self._states: dict[Partition, tuple[object, ...]] = {}
        self._image = EMPTY_IMAGE

    def check(self, cluster: Cluster) -> None:
        for node in cluster.stirred:
            broker, process = node.broker, node.machine.process
            if broker is None or process is None or process.life is Life.DEAD:
                continue
            if broker.metadata.image is not self._image:
                self._check_image(node, broker.metadata.image)
            self._check_replicas(node, broker.replicas.partitions())

    def _check_replicas(self, node: Node, partitions: Iterator[Partition]) -> None:
        states = self._states
        for partition in partitions:
            log = partition.log
            now = (
                partition.role,
                partition.leader_epoch,
                log,
                log.log_start_offset,
                partition.high_watermark,
                log.log_end_offset,
            )
            before = states.get(partition)
            if before != now and partition.role is not Role.OFFLINE:
                states[partition] = now
                known = None if before is None else State._make(before)
                for look in self._looks:
                    look.on_replica(node, partition, known, State._make(now))

    def _check_image(self, node: Node, image: MetadataImage) -> None:
        if image.offset > self._image.offset if self._controller is None else node.name == self._controller:
            before, self._image = self._image, image
            for look in self._looks:
                look.on_image(before, image)


def changed_partitions(
    before: MetadataImage, now: MetadataImage
) -> Iterator[tuple[Key, PartitionImage | None, PartitionImage]]:
    """With what was before, where there was something."""
    if now.topics_by_name is before.topics_by_name:
        return
    for name, topic in now.topics_by_name.items():
        earlier = before.topics_by_id.get(topic.topic_id)
        if topic is earlier:
            continue
        for index, partition in enumerate(topic.partitions):
            known = None if earlier is None or index >= len(earlier.partitions) else earlier.partitions[index]
            if known != partition:
                yield (TopicPartition(name, index), topic.topic_id), known, partition


class UncleanElections:
    """Which partitions had one. Give it to the looks, in front of those that it excuses."""

    def __init__(self) -> None:
        self.partitions: dict[Key, int] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Replicas elect nobody."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        for key, earlier, decided in changed_partitions(before, now):
            was = earlier is not None and earlier.leader_recovery_state == RECOVERING
            if decided.leader_recovery_state == RECOVERING and not was:
                self.partitions[key] = self.partitions.get(key, 0) + 1

    @property
    def topics(self) -> set[str]:
        return {tp.topic for tp, _ in self.partitions}


class Committed:
    """The one history of each partition."""

    def __init__(self, cluster: Cluster, unclean: UncleanElections | None = None) -> None:
        self._cluster = cluster
        self._image = EMPTY_IMAGE
        self._unclean = UncleanElections() if unclean is None else unclean
        #: Base offset -> (end offset, leader epoch, checksum of the records).
        self.batches: dict[Key, dict[int, tuple[int, int, int]]] = {}
        self.ends: dict[Key, int] = {}
        #: How far a replica's log is known to be right.
        self._checked: dict[Partition, tuple[Log, int]] = {}
        #: The newest epoch in which a leader was seen.
        self._epochs: dict[Key, int] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        key = (partition.topic_partition, partition.topic_id)
        if key in self._unclean.partitions:
            return
        is_new_term = before is None or before[:2] != now[:2]
        if now.role is Role.LEADER and is_new_term:
            self._on_new_leader(node, partition)
        log, checked = self._checked.get(partition, (None, 0))
        if log is not now.log:
            checked = 0
        end = self.ends.get(key, 0)
        if now.high_watermark > checked:
            self._compare(node, partition, max(checked, now.log_start_offset), now.high_watermark)
            self._checked[partition] = (now.log, now.high_watermark)
        if self.ends.get(key, 0) != end or before is None or now.log_end_offset < before.log_end_offset:
            self._check_candidates(key)

    def forget_checked(self, partition: Partition) -> None:
        """Look at all of this replica again."""
        self._checked.pop(partition, None)

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        self._image = now
        for key, _, _ in changed_partitions(before, now):
            self._check_candidates(key)

    def _check_candidates(self, key: Key) -> None:
        """Whoever may be elected has all. Not asked of those that the controller takes for an earlier incarnation."""
        (topic, index), topic_id = key
        found, end = self._image.topics_by_id.get(topic_id), self.ends.get(key, 0)
        if found is None or not end or key in self._unclean.partitions:
            return
        decided = found.partitions[index]
        for replica in (*decided.isr, *decided.elr):
            node, registered = self._cluster.nodes[f"broker{replica}"], self._image.brokers.get(replica)
            if not node.is_running or node.broker is None or registered is None:
                continue
            replicas = node.broker.replicas
            partition = replicas.find(topic, index)
            if partition is None or partition.topic_id != topic_id or partition.role is Role.OFFLINE:
                continue
            if replicas.environment.broker_epoch() == registered.epoch and partition.log.log_end_offset < end:
                raise Violation(
                    f"a candidate has not all that is committed: {topic}-{index} on {node.name} ends at "
                    f"{partition.log.log_end_offset}; committed were {end}; {decided}"
                )

    def _on_new_leader(self, node: Node, partition: Partition) -> None:
        """It has all that was committed in earlier epochs, but for what was deleted. One that hears of its leadership
        when the next has begun already knows nothing of that one's records, and cannot commit."""
        tp = partition.topic_partition
        key = (tp, partition.topic_id)
        if partition.leader_epoch < self._epochs.get(key, -1):
            return
        self._epochs[key] = partition.leader_epoch
        end = self.ends.get(key, 0)
        if partition.log.log_end_offset < end:
            raise Violation(
                f"committed records are lost: {tp} is led by {node.name}, which ends at "
                f"{partition.log.log_end_offset}; committed were {end}"
            )
        self._compare(node, partition, partition.log.log_start_offset, end)

    def _compare(self, node: Node, partition: Partition, start: int, end: int) -> None:
        """Batches from `start` to `end` are the committed ones; those beyond what is known become known."""
        tp = partition.topic_partition
        key = (tp, partition.topic_id)
        known = self.batches.setdefault(key, {})
        offset = start
        while offset < end:
            data = read_unnoticed(node, partition, offset, end)
            if not data:
                raise Violation(f"{tp} on {node.name} cannot be read at {offset}, below {end}")
            for position, header in iter_headers(memoryview(data)):
                last = header.base_offset + header.last_offset_delta
                body = crc32(memoryview(data)[position + 17 : position + header.size_bytes])
                found = (last + 1, header.partition_leader_epoch, body)
                expected = known.setdefault(header.base_offset, found)
                if expected != found:
                    raise Violation(
                        f"logs differ below the HW: {tp} on {node.name} has {found} at {header.base_offset}, "
                        f"committed was {expected}"
                    )
                offset = last + 1
        self.ends[key] = max(self.ends.get(key, 0), end)


def read_unnoticed(node: Node, partition: Partition, offset: int, end: int) -> bytes:
    """Without a trace in the world: neither time nor faults of the disk."""
    with node.disk.unnoticed():
        return bytes(partition.log.read(offset, 1 << 20, up_to=end).data)


class OneLeader:
    def __init__(self) -> None:
        self._leaders: dict[tuple[Key, int], str] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        if now.role is not Role.LEADER:
            return
        key = ((partition.topic_partition, partition.topic_id), now.leader_epoch)
        other = self._leaders.setdefault(key, node.name)
        if other != node.name:
            raise Violation(f"two leaders in one epoch: {key} is led by {other} and {node.name}")
        if now.log.epochs.latest_epoch != now.leader_epoch:
            raise Violation(
                f"a leader does not know its epoch: {partition.topic_partition} on {node.name} leads in "
                f"{now.leader_epoch}, its log knows {now.log.epochs.latest_epoch}"
            )

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Roles are carried out by the replicas."""


class Offsets:
    """Of leaders and followers: HWs only go back where a partition had an unclean election."""

    def __init__(self, unclean: UncleanElections | None = None) -> None:
        self._unclean = UncleanElections() if unclean is None else unclean

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        name = f"{partition.topic_partition} on {node.name}"
        if not now.log_start_offset <= now.high_watermark <= now.log_end_offset:
            raise Violation(f"offsets out of order: {name}: {now[3:]}")
        if before is None or before.log is not now.log:
            return
        is_same_term = before.role is now.role is Role.LEADER and before.leader_epoch == now.leader_epoch
        if now.high_watermark < before.high_watermark and (is_same_term or not self._is_excused(partition)):
            raise Violation(f"HW went back: {name}: from {before.high_watermark} to {now.high_watermark}")
        if is_same_term and now.log_end_offset < before.log_end_offset:
            raise Violation(f"LEO of a leader went back: {name}")

    def _is_excused(self, partition: Partition) -> bool:
        return (partition.topic_partition, partition.topic_id) in self._unclean.partitions

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Says nothing of offsets."""


class Quorum:
    """A leader counts at least on those that the controller would elect: what it calls committed, they all have."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._image = EMPTY_IMAGE

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        if now.role is Role.LEADER:
            (topic, index), topic_id = partition.topic_partition, partition.topic_id
            found = self._image.topics_by_id.get(topic_id)
            if found is not None and found.name == topic and index < len(found.partitions):
                self._compare(node, partition, found.partitions[index])

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        self._image = now
        for ((topic, index), topic_id), _, decided in changed_partitions(before, now):
            node = self._cluster.nodes.get(f"broker{decided.leader}")
            if node is not None and node.is_running and node.broker is not None:
                partition = node.broker.replicas.find(topic, index)
                if partition is not None and partition.topic_id == topic_id and partition.role is Role.LEADER:
                    self._compare(node, partition, decided)

    def _compare(self, node: Node, partition: Partition, decided: PartitionImage) -> None:
        leadership = partition.leadership
        if leadership is None or leadership.epoch != decided.leader_epoch:
            return
        if not set(decided.isr) <= set(leadership.maximal_isr):
            raise Violation(
                f"a leader does not wait for all of the ISR: {partition.topic_partition} on {node.name} waits for "
                f"{leadership.maximal_isr}, the controller has {decided.isr}"
            )
