"""Invariants that are looked at while the world runs: cheap ones after every few events, on the brokers' own objects.

A checker raises `Violation` at the first broken promise, so the time line ends where it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.common.types import TopicPartition
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.cluster import Cluster
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node


class Checker(Protocol):
    def check(self, cluster: Cluster) -> None:
        """Raises Violation."""


class Watch:
    """Runs checkers after every `interval` events of the world."""

    def __init__(self, cluster: Cluster, checkers: Sequence[Checker], interval: int = 8) -> None:
        self._cluster = cluster
        self._checkers = tuple(checkers)
        self._interval = interval
        self._left = interval
        self.looks = 0
        cluster.world.after_event = self._after_event

    def _after_event(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._interval
            self.look()

    def look(self) -> None:
        self.looks += 1
        for checker in self._checkers:
            checker.check(self._cluster)


class _Seen(NamedTuple):
    incarnation: int
    topic_id: bytes
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class PartitionOffsets:
    """Log start <= HW <= LEO on every replica; while a replica leads in one epoch none of them goes back."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, TopicPartition], _Seen] = {}

    def check(self, cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            if node.is_running and node.broker is not None:
                for partition in node.broker.replicas.partitions():
                    if partition.role is not Role.OFFLINE:
                        self._check_one(node, partition)

    def _check_one(self, node: Node, partition: Partition) -> None:
        log, key = partition.log, (node.name, partition.topic_partition)
        now = _Seen(
            node.machine.incarnation,
            partition.topic_id,
            partition.leader_epoch,
            log.log_start_offset,
            partition.high_watermark,
            log.log_end_offset,
        )
        before = self._seen.get(key)
        if before == now:
            return
        self._seen[key] = now
        name = f"{partition.topic_partition} on {node.name}"
        if not now.log_start_offset <= now.high_watermark <= now.log_end_offset:
            raise Violation(f"{name}: log start <= HW <= LEO does not hold: {now[3:]}")
        if before is None or partition.role is not Role.LEADER or now[:3] != before[:3]:
            return
        for what, old, new in zip(("log start offset", "HW", "LEO"), before[3:], now[3:], strict=True):
            if new < old:
                raise Violation(f"{name}: the {what} went back from {old} to {new}")


class NoMistakes:
    """No exception of ours that nobody caught, in no event and behind no connection."""

    def check(self, cluster: Cluster) -> None:
        errors = cluster.world.errors
        if errors:
            _, process, error = errors[0]
            raise Violation(f"{process}: nobody caught {type(error).__name__}: {error}") from error
        for node in cluster.nodes.values():
            if node.connection_log.errors:
                cause, mistake = node.connection_log.errors[0]
                raise Violation(f"{node.name}: {cause}: {type(mistake).__name__}: {mistake}") from mistake
