"""Raft's properties, checked on the quorum's running nodes (Ongaro and Ousterhout, "In Search of an Understandable
Consensus Algorithm", figure 3):

    election safety         at most one leader in an epoch
    leader completeness     a new leader's log contains everything that was ever committed
    log matching            what one node has as committed, every other one has too: the same batches at the same
    and state machine safety    offsets, of the same epoch, with the same bytes (their checksum)

Reads of logs bypass the simulated costs and faults of the disk, so that checks do not affect the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from barnabas.records.header import BatchHeader
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.simulated_cluster import Cluster

_SLICE_BYTES = 64 * 1024


class LogView(Protocol):
    """The checked part of a node's metadata log."""

    @property
    def start_offset(self) -> int: ...

    def batches(self, offset: int, slice_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]: ...


class RaftView(Protocol):
    """The checked part of `barnabas.raft.node.RaftNode`."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log(self) -> LogView: ...


class _Batch(NamedTuple):
    last_offset: int
    epoch: int
    crc: int


class QuorumSafety:
    """Checks the properties. Leaders and committed batches are remembered over the whole run, including restarts."""

    def __init__(self) -> None:
        self._leaders: dict[int, str] = {}
        self._committed: dict[int, _Batch] = {}
        self._committed_end = 0
        #: Node -> incarnation, and the offset up to which its committed log was compared.
        self._compared: dict[str, tuple[int, int]] = {}

    def check(self, cluster: Cluster) -> None:
        for node in cluster.dirty:
            if node.is_running and node.broker is not None and "controller" in node.properties["process.roles"]:
                self.check_node(node.name, node.machine.incarnation, node.broker.quorum.raft, node.disk)

    def check_node(self, name: str, incarnation: int, raft: RaftView, disk: FaultyDisk) -> None:
        """Compares one node with all leaders and committed batches seen before."""
        if raft.is_leader and self._leaders.get(raft.epoch) != name:
            before = self._leaders.setdefault(raft.epoch, name)
            if before != name:
                raise Violation(f"two leaders: {before} and {name} in epoch {raft.epoch}")
            if raft.log_end_offset < self._committed_end:
                raise Violation(
                    f"incomplete leader: {name} leads epoch {raft.epoch} with a log up to {raft.log_end_offset}, "
                    f"{self._committed_end} was committed"
                )
        known_incarnation, compared = self._compared.get(name, (0, 0))
        if known_incarnation != incarnation:
            compared = 0
        high_watermark = raft.high_watermark
        if high_watermark == compared and known_incarnation == incarnation:
            return
        if high_watermark > compared:
            with disk.without_effects():
                self._compare(name, raft.log, compared, high_watermark)
        elif high_watermark < compared:
            raise Violation(f"quorum high watermark of {name} went back from {compared} to {high_watermark}")
        self._compared[name] = (incarnation, max(compared, high_watermark))

    def _compare(self, name: str, log: LogView, start: int, end: int) -> None:
        for header, _ in log.batches(max(start, log.start_offset), _SLICE_BYTES):
            if header.last_offset >= end:
                break
            batch = _Batch(header.last_offset, header.partition_leader_epoch, header.crc)
            before = self._committed.setdefault(header.base_offset, batch)
            if before != batch:
                raise Violation(f"committed twice: {name} has {batch} at {header.base_offset}, another had {before}")
        self._committed_end = max(self._committed_end, end)
