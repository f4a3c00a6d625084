"""A leader of a quorum whose disk cannot be read: it ends, as after a failed write."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.calm_quorum import CalmWorld

from barnabas.common.errors import StorageFault
from barnabas.raft.metadata_log import MetadataLog
from barnabas.raft.snapshots import SnapshotFiles
from barnabas.simulation.worlds.quorum_checker import Violation


def unreadable(*arguments: Any) -> Any:
    raise StorageFault("/data", "cannot read")


def test_a_leader_that_cannot_read_its_metadata_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node ends instead of closing the connection of each follower that lags."""
    calm = CalmWorld()
    monkeypatch.setattr(MetadataLog, "read", unreadable)
    with pytest.raises(Violation, match=r"the metadata log in .* failed: .*cannot read"):
        calm.call(calm.leader, calm.fetch(offset=0))


def test_a_leader_that_cannot_read_its_snapshots_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = CalmWorld()
    monkeypatch.setattr(SnapshotFiles, "list", unreadable)
    with pytest.raises(Violation, match=r"the metadata log in .* failed: .*cannot read"):
        calm.call(calm.leader, calm.fetch(offset=0))
