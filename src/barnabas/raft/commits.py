"""The committed metadata log as its listeners get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.protocol.message import Message
from barnabas.raft.snapshots import Snapshot, SnapshotId


class CommittedBatch(NamedTuple):
    """A committed batch of the metadata log. `records` is empty for the quorum's own control batches."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int
    records: Sequence[Message]


class CommitListener(Protocol):
    """A subscriber of the committed metadata log."""

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Receives a snapshot of the content up to `snapshot_id.end_offset`, which replaces everything before."""

    def on_commit(self, batch: CommittedBatch) -> None:
        """Receives each batch once, in order."""

    def on_caught_up(self) -> None:
        """Reports that everything that this node knows to be committed has been delivered."""
