"""Invariants of replicated partitions, checked on the nodes' own objects (names as in the TLA+ models of KIP-966):

    Committed     records below any leader's HW never change and never disappear: the same batch at the same offset on
                  every replica whose HW passes it (LogMatching up to the HW), on every leader (LeaderCompleteness), and
                  every replica in ISR or ELR has all of them (LeaderCandidateCompleteness)
    OneLeader     in one leader epoch one broker leads; its log knows that epoch before its first append (G3)
    Offsets       log start <= HW <= LEO; a replica's HW and a leader's LEO never go back within an epoch
    Decisions     the controller's decisions: `replication_decisions`
    Quorum        the ISR that the controller knows is within the one its leader waits for (ReplicationQuorumSuperset)

Only changed replicas are checked. An unclean election can lose all records: a partition that had one is not checked
from then on, and `UncleanElections` lists these partitions.
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
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.timeline import partition_text
from barnabas.simulation.world import ProcessState
from barnabas.storage.log import Log

#: An incarnation of a partition: its name and its topic's id.
Key = tuple[TopicPartition, bytes]


class State(NamedTuple):
    """The state of one replica after an event. A replica that was removed or closed comes back as another
    `Partition`."""

    role: Role
    leader_epoch: int
    log: Log
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class ReplicaChecker(Protocol):
    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Checks a changed replica. Raises Violation."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Checks new decisions of the controller. Raises Violation."""


class Replicas:
    """Finds changed replicas and passes them to checkers. It takes decisions from `decided` if that is given, else from
    node `controller`, or, if that is None, from the node with the newest ones.
    """

    def __init__(
        self,
        controller: str | None,
        replica_checkers: Sequence[ReplicaChecker],
        decided: DecidedMetadata | None = None,
    ) -> None:
        self._controller = controller
        self._decided = decided
        self._checkers = tuple(replica_checkers)
        self._states: dict[Partition, tuple[object, ...]] = {}
        self._image = EMPTY_IMAGE

    def check(self, cluster: Cluster) -> None:
        if self._decided is not None:
            self._take(self._decided.image())
        for node in cluster.dirty:
            broker, process = node.broker, node.machine.process
            if broker is None or process is None or process.state is ProcessState.DEAD:
                continue
            image = broker.metadata.image
            if image is not self._image and self._decided is None:
                self._check_image(node, image)
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
                for checker in self._checkers:
                    checker.on_replica(node, partition, known, State._make(now))

    def _check_image(self, node: Node, image: MetadataImage) -> None:
        if image.offset > self._image.offset if self._controller is None else node.name == self._controller:
            self._take(image)

    def _take(self, image: MetadataImage) -> None:
        if image is not self._image:
            before, self._image = self._image, image
            for checker in self._checkers:
                checker.on_image(before, image)


def changed_partitions(
    before: MetadataImage, now: MetadataImage
) -> Iterator[tuple[Key, PartitionImage | None, PartitionImage]]:
    """Yields changed partitions, with their previous state if there is one."""
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
    """Collects the partitions that had an unclean election. Must precede the checkers that use it."""

    def __init__(self) -> None:
        self.partitions: dict[Key, int] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Does nothing: replicas elect no leader."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        for key, earlier, decided in changed_partitions(before, now):
            was = earlier is not None and earlier.leader_recovery_state == RECOVERING
            if decided.leader_recovery_state == RECOVERING and not was:
                self.partitions[key] = self.partitions.get(key, 0) + 1

    @property
    def topics(self) -> set[str]:
        return {tp.topic for tp, _ in self.partitions}


class Committed:
    """Checks committed records against the single history of committed batches of each partition."""

    def __init__(self, cluster: Cluster, unclean: UncleanElections | None = None) -> None:
        self._cluster = cluster
        self._image = EMPTY_IMAGE
        self._unclean = UncleanElections() if unclean is None else unclean
        #: Base offset -> (end offset, leader epoch, checksum of the records). The checksum is None as long as the batch
        #: was only seen where the cleaner can have removed records from it.
        self.batches: dict[Key, dict[int, tuple[int, int, int | None]]] = {}
        self.ends: dict[Key, int] = {}
        #: The offset up to which a replica's log is known to be right.
        self._checked: dict[Partition, tuple[Log, int]] = {}
        #: The offsets that `_cleanable_end` returned last.
        self._cleanable: dict[Key, int] = {}
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
        """Makes the next check compare the whole log of this replica."""
        self._checked.pop(partition, None)

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        self._image = now
        for key, _, _ in changed_partitions(before, now):
            self._check_candidates(key)

    def _check_candidates(self, key: Key) -> None:
        """Checks that every candidate for leader has all committed records. Candidates that the controller knows only
        as an earlier incarnation are not checked.
        """
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
                    f"a candidate lacks committed records: {topic}-{index} on {node.name} ends at "
                    f"{partition.log.log_end_offset}; committed were {end}; {partition_text(decided)}",
                    ((topic, index), partition.log.log_end_offset),
                )

    def _is_alone_and_unregistered(self, node: Node) -> bool:
        """Returns whether this is the only broker, and the controller knows it only as an earlier incarnation. It leads
        at once, because no other broker can have newer records; the controller decides about lost
        records with its registration, which can come in several portions.
        """
        registered = self._image.brokers.get(int(node.name.removeprefix("broker")))
        if len(self._image.brokers) != 1 or registered is None or node.broker is None:
            return False
        return node.broker.replicas.environment.broker_epoch() != registered.epoch

    def _on_new_leader(self, node: Node, partition: Partition) -> None:
        """Checks that a new leader has all records committed in earlier epochs, except for deleted ones.

        A leader that learns of its leadership after the next epoch has begun lacks that epoch's records, and cannot
        commit.
        """
        tp = partition.topic_partition
        key = (tp, partition.topic_id)
        if partition.leader_epoch < self._epochs.get(key, -1) or self._is_alone_and_unregistered(node):
            return
        self._epochs[key] = partition.leader_epoch
        end = self.ends.get(key, 0)
        if partition.log.log_end_offset < end:
            raise Violation(
                f"committed records are lost: {tp} is led by {node.name}, which ends at "
                f"{partition.log.log_end_offset}; committed were {end}",
                ((tp.topic, tp.partition), partition.log.log_end_offset),
            )
        self._compare(node, partition, partition.log.log_start_offset, end)

    def _compare(self, node: Node, partition: Partition, start: int, end: int) -> None:
        """Checks that the batches from `start` to `end` are the committed ones, and adds those that are new."""
        tp = partition.topic_partition
        key = (tp, partition.topic_id)
        known = self.batches.setdefault(key, {})
        cleanable_end = self._cleanable_end(key) if partition.log.config.is_compacted else 0
        offset = start
        while offset < end:
            data = read_without_effects(node, partition, offset, end)
            if not data and offset < cleanable_end:
                break
            if not data:
                text = f"a replica cannot be read: {tp} on {node.name} at {offset}, below {end}"
                raise Violation(text, ((tp.topic, tp.partition), offset))
            for position, header in iter_headers(memoryview(data)):
                last = header.base_offset + header.last_offset_delta
                body: int | None = crc32(memoryview(data)[position + 17 : position + header.size_bytes])
                if header.base_offset < cleanable_end:
                    body = None
                found = (last + 1, header.partition_leader_epoch, body)
                expected = known.setdefault(header.base_offset, found)
                if expected[2] is None:
                    expected = known[header.base_offset] = (*expected[:2], body)
                if expected[:2] != found[:2] or body not in (None, expected[2]):
                    raise Violation(
                        f"logs differ below the HW: {tp} on {node.name} has {_batch_text(found)} at "
                        f"{header.base_offset}, committed was {_batch_text(expected)}",
                        ((tp.topic, tp.partition), header.base_offset),
                    )
                offset = last + 1
        self.ends[key] = max(self.ends.get(key, 0), end)

    def _cleanable_end(self, key: Key) -> int:
        """Returns the offset below which the cleaner of any replica can have removed records: the newest beginning of
        an active segment. Each broker cleans by itself, and followers fetch what a leader has cleaned.
        """
        end = self._cleanable.get(key, 0)
        for node in self._cluster.nodes.values():
            partition = None if node.broker is None else node.broker.replicas.find(*key[0])
            if partition is not None and partition.topic_id == key[1] and partition.role is not Role.OFFLINE:
                end = max(end, partition.log.segments.active.base_offset)
        self._cleanable[key] = end
        return end


def _batch_text(batch: tuple[int, int, int | None]) -> str:
    end, epoch, body = batch
    checksum = "" if body is None else f" with checksum {body:08x}"
    return f"a batch up to {end - 1} of epoch {epoch}{checksum}"


def read_without_effects(node: Node, partition: Partition, offset: int, end: int) -> bytes:
    """Runs a checker's read without any effect in the world: neither time nor faults of the disk."""
    with node.disk.without_effects():
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
            raise Violation(
                f"two leaders in one epoch: {partition.topic_partition} is led by {other} and {node.name} in "
                f"{now.leader_epoch}"
            )
        if now.log.epochs.latest_epoch != now.leader_epoch:
            raise Violation(
                f"a leader does not know its epoch: {partition.topic_partition} on {node.name} leads in "
                f"{now.leader_epoch}, its log knows {now.log.epochs.latest_epoch}"
            )

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Does nothing: only replicas lead."""


class Offsets:
    """Checks the offsets of leaders and followers: a HW goes back only after an unclean election of its partition."""

    def __init__(self, unclean: UncleanElections | None = None) -> None:
        self._unclean = UncleanElections() if unclean is None else unclean

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        name = f"{partition.topic_partition} on {node.name}"
        if not now.log_start_offset <= now.high_watermark <= now.log_end_offset:
            raise Violation(
                f"offsets out of order: {name}: log start {now.log_start_offset}, HW {now.high_watermark}, end "
                f"{now.log_end_offset}"
            )
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
        """Does nothing: an image has no offsets."""


class Quorum:
    """Checks that a leader waits for all brokers that the controller would elect before it commits records."""

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
