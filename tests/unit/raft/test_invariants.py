"""Assertions of the raft node that stop it before it delivers, commits or forgets something wrongly."""

from __future__ import annotations

import pytest
from tests.support.node_world import NodeWorld

from barnabas.raft.delivery import Delivery
from barnabas.raft.quorum import Leader
from barnabas.raft.snapshots import Snapshot, SnapshotId


def test_delivered_records_are_never_truncated() -> None:
    delivery = Delivery([])
    delivery.offset = 10
    delivery.truncated(10)
    with pytest.raises(AssertionError, match="truncation of committed records at 9"):
        delivery.truncated(9)


def test_no_snapshot_is_older_than_what_was_delivered() -> None:
    delivery = Delivery([])
    delivery.offset = 10
    with pytest.raises(AssertionError, match="a snapshot older than the records already delivered"):
        delivery.reset(SnapshotId(9, 1), Snapshot())
    assert delivery.offset == 10


def test_a_leader_commits_only_records_of_its_log() -> None:
    world = NodeWorld().join()
    core, leading = world.raft._core, world.raft._leading
    leader = core.quorum.role
    assert isinstance(leader, Leader)
    leader.progress.high_watermark = core.log.end_offset + 1
    with pytest.raises(AssertionError, match="a leader commits only records of its log"):
        leading._moved(leader)
