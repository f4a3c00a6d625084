"""Planted breaches of Raft's promises, each found by the checker, and a quorum without breaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from barnabas.records.header import BatchHeader
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.host import VirtualTime
from barnabas.simulation.raft_checkers import QuorumSafety


@dataclass
class Log:
    headers: list[BatchHeader] = field(default_factory=list)
    start_offset: int = 0

    def batches(self, offset: int, slice_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for header in self.headers:
            if header.last_offset >= offset:
                yield header, memoryview(b"")


@dataclass
class Raft:
    epoch: int
    is_leader: bool
    log: Log
    high_watermark: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.log.headers[-1].next_offset if self.log.headers else 0


def batch(base_offset: int, epoch: int, crc: int, count: int = 2) -> BatchHeader:
    return BatchHeader(base_offset, 60, epoch, 2, crc, 0, count - 1, 0, 0, -1, -1, -1, count)


DISK = FaultyDisk(Random(1), VirtualTime(), lambda duration_us: None)


def test_a_quorum_that_agrees_is_left_in_peace() -> None:
    checker, log = QuorumSafety(), Log([batch(0, 1, 11), batch(2, 1, 12)])
    checker.check_node("a", 1, Raft(1, True, log, 4), DISK)
    checker.check_node("b", 1, Raft(1, False, log, 2), DISK)
    checker.check_node("b", 1, Raft(2, True, log, 4), DISK)
    checker.check_node("a", 2, Raft(2, False, log, 0), DISK)


def test_two_leaders_in_one_epoch() -> None:
    checker, log = QuorumSafety(), Log([batch(0, 1, 11)])
    checker.check_node("a", 1, Raft(3, True, log), DISK)
    with pytest.raises(Violation, match="two leaders: a and b in epoch 3"):
        checker.check_node("b", 1, Raft(3, True, log), DISK)


def test_a_leader_without_what_was_committed() -> None:
    checker = QuorumSafety()
    checker.check_node("a", 1, Raft(1, True, Log([batch(0, 1, 11), batch(2, 1, 12)]), 4), DISK)
    with pytest.raises(Violation, match="incomplete leader: b"):
        checker.check_node("b", 1, Raft(2, True, Log([batch(0, 1, 11)]), 2), DISK)


@pytest.mark.parametrize("other", [batch(2, 1, 99), batch(2, 2, 12), batch(2, 1, 12, count=1)])
def test_another_batch_where_one_was_committed(other: BatchHeader) -> None:
    checker = QuorumSafety()
    checker.check_node("a", 1, Raft(1, True, Log([batch(0, 1, 11), batch(2, 1, 12)]), 4), DISK)
    with pytest.raises(Violation, match="committed twice"):
        checker.check_node("b", 1, Raft(1, False, Log([batch(0, 1, 11), other]), 4), DISK)


def test_a_high_watermark_that_goes_back() -> None:
    checker, log = QuorumSafety(), Log([batch(0, 1, 11), batch(2, 1, 12)])
    checker.check_node("a", 1, Raft(1, True, log, 4), DISK)
    with pytest.raises(Violation, match="went back from 4 to 2"):
        checker.check_node("a", 1, Raft(1, True, log, 2), DISK)
