"""What must hold in a replicated partition at every moment, looked at on the brokers' own objects.

    Committed     what any leader's HW has passed never changes and never goes: the same batch at the same offset on
                  every replica whose HW passes it (LogMatching up to the HW), and on every leader (LeaderCompleteness)
    OneLeader     in one leader epoch one broker leads; only its followers' histories go on from it
    Offsets       log start <= HW <= LEO; a leader's HW and LEO never go back within its epoch

With an unclean election all of it may be lost; runs with one have `Committed` told so.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from barnabas.common.types import TopicPartition
from barnabas.records.batch import iter_headers
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.cluster import Cluster
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node


class Committed:
    """The one history of each partition."""

    def __init__(self) -> None:
        #: Base offset -> (end offset, leader epoch, checksum of the records).
        self.batches: dict[TopicPartition, dict[int, tuple[int, int, int]]] = {}
        self.ends: dict[TopicPartition, int] = {}
        #: How far a replica's log is known to be right: (incarnation, topic id, log, LEO at that time, end).
        self._checked: dict[tuple[str, TopicPartition], tuple[object, int]] = {}
        self._led: dict[tuple[str, TopicPartition], tuple[int, int]] = {}

    def check(self, cluster: Cluster) -> None:
        for node, partition in running(cluster):
            self._check_one(node, partition)

    def _check_one(self, node: Node, partition: Partition) -> None:
        tp = partition.topic_partition
        key = (node.name, tp)
        if partition.role is Role.LEADER:
            term = (node.machine.incarnation, partition.leader_epoch)
            if self._led.get(key) != term:
                self._led[key] = term
                self._on_new_leader(node, partition)
        log, checked = self._checked.get(key, (None, 0))
        if log is not partition.log:
            checked = 0
        if partition.high_watermark > checked:
            self._compare(node, partition, max(checked, partition.log.log_start_offset), partition.high_watermark)
            self._checked[key] = (partition.log, partition.high_watermark)

    def _on_new_leader(self, node: Node, partition: Partition) -> None:
        """It has all that was ever committed, but for what was deleted."""
        tp = partition.topic_partition
        end = self.ends.get(tp, 0)
        if partition.log.log_end_offset < end:
            raise Violation(
                f"committed records are lost: {tp} is led by {node.name}, which ends at "
                f"{partition.log.log_end_offset}; committed were {end}"
            )
        self._compare(node, partition, partition.log.log_start_offset, end)

    def _compare(self, node: Node, partition: Partition, start: int, end: int) -> None:
        """Batches from `start` to `end` are the committed ones; those beyond what is known become known."""
        tp = partition.topic_partition
        known = self.batches.setdefault(tp, {})
        offset = start
        while offset < end:
            data = _read(node, partition, offset, end)
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
        self.ends[tp] = max(self.ends.get(tp, 0), end)


def _read(node: Node, partition: Partition, offset: int, end: int) -> bytes:
    """Without a trace in the world: neither time nor faults of the disk."""
    disk = node.disk
    charge, failing = disk.charge, disk.fail_with
    disk.charge, disk.fail_with = _ignore, None
    try:
        return bytes(partition.log.read(offset, 1 << 20, up_to=end).data)
    finally:
        disk.charge, disk.fail_with = charge, failing


def _ignore(duration_us: int) -> None: ...


def running(cluster: Cluster) -> list[tuple[Node, Partition]]:
    return [
        (node, partition)
        for node in cluster.nodes.values()
        if node.is_running and node.broker is not None
        for partition in node.broker.replicas.partitions()
        if partition.role is not Role.OFFLINE
    ]


class OneLeader:
    def __init__(self) -> None:
        self._leaders: dict[tuple[TopicPartition, bytes, int], str] = {}

    def check(self, cluster: Cluster) -> None:
        for node, partition in running(cluster):
            if partition.role is Role.LEADER:
                key = (partition.topic_partition, partition.topic_id, partition.leader_epoch)
                other = self._leaders.setdefault(key, node.name)
                if other != node.name:
                    raise Violation(f"two leaders in one epoch: {key} is led by {other} and {node.name}")


class _Seen(NamedTuple):
    incarnation: int
    topic_id: bytes
    role: Role
    leader_epoch: int
    high_watermark: int
    log_end_offset: int


class Offsets:
    """What `simulation.checkers.PartitionOffsets` says of leaders, and of followers: their HW only goes back where they
    are cut back, which must not be below it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, TopicPartition], _Seen] = {}

    def check(self, cluster: Cluster) -> None:
        for node, partition in running(cluster):
            log, key = partition.log, (node.name, partition.topic_partition)
            now = _Seen(
                node.machine.incarnation,
                partition.topic_id,
                partition.role,
                partition.leader_epoch,
                partition.high_watermark,
                log.log_end_offset,
            )
            before = self._seen.get(key)
            if before == now:
                continue
            self._seen[key] = now
            name = f"{partition.topic_partition} on {node.name}"
            if not log.log_start_offset <= now.high_watermark <= now.log_end_offset:
                raise Violation(
                    f"offsets out of order: {name}: {log.log_start_offset}, {now.high_watermark}, {now.log_end_offset}"
                )
            if before is None or before[:2] != now[:2]:
                continue
            if now.high_watermark < before.high_watermark:
                raise Violation(f"HW went back: {name}: from {before.high_watermark} to {now.high_watermark}")
            is_same_term = before.role is now.role is Role.LEADER
            if is_same_term and now.log_end_offset < before.log_end_offset:
                raise Violation(f"LEO of a leader went back: {name}")
