"""The invariants of a quorum, checked after every step, and the acknowledgements that must hold (Raft, figure 3;
KIP-595).

Election safety         one leader in an epoch; one vote of a replica in an epoch, even across restarts
Log matching            a batch of one (epoch, offset) is the same in all logs, and so is the one before it
Leader completeness     an elected leader has everything that was ever committed
State machine safety    at each offset all nodes get the same batch, each in order, none twice
Monotonicity            no node's high watermark or epoch decreases while it runs, nor its epoch across a restart
Promises                a proposal that was acknowledged is in the committed log
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import ConfigRecord
from barnabas.protocol.messages.vote import VoteRequest, VoteResponse
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.node import RaftNode
from barnabas.raft.quorum import Leader
from barnabas.raft.snapshots import Snapshot, SnapshotId
from barnabas.raft.voters import VoterKey

Batch = tuple[int, int, tuple[str, ...]]


class Violation(AssertionError):
    """An invariant is broken."""


def _content(batch: CommittedBatch) -> Batch:
    names = tuple(str(getattr(record, "value", record.NAME)) for record in batch.records)
    return batch.epoch, batch.last_offset, names


class Shadow:
    """The expected log of one node, and the commits that it has received."""

    def __init__(self) -> None:
        #: Base offset -> batch, ascending.
        self.log: dict[int, Batch] = {}
        self.delivered = 0
        self.high_watermark = -1
        self.epoch = 0

    def before(self, base_offset: int) -> tuple[int, int] | None:
        """(epoch, last offset) of the batch before; None at the log's start."""
        last = next(reversed(self.log.values()), None)
        return None if last is None else (last[0], last[1])


class Checker:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[VoterKey, int], VoterKey] = {}
        self.batches: dict[tuple[int, int], tuple[Batch, tuple[int, int] | None]] = {}
        #: Base offset -> batch, ascending.
        self.committed: dict[int, Batch] = {}
        self.committed_end = 0
        #: (epoch, base offset) of each committed batch, in the order of the commits.
        self.committed_in: list[tuple[int, int]] = []
        self.shadows: dict[VoterKey, Shadow] = {}
        self.promised: dict[int, str] = {}

    # Changes of a node's log.

    def shadow(self, key: VoterKey) -> Shadow:
        return self.shadows.setdefault(key, Shadow())

    def restarted(self, key: VoterKey) -> None:
        """Resets the expectations for a restarted node: its log delivers everything again."""
        shadow = self.shadow(key)
        shadow.log.clear()
        shadow.delivered = 0
        shadow.high_watermark = -1

    def on_appended(self, key: VoterKey, batch: CommittedBatch) -> None:
        shadow, content = self.shadow(key), _content(batch)
        before = shadow.before(batch.base_offset)
        if before is not None and before[1] + 1 != batch.base_offset:
            raise Violation(f"node {key.node_id} has a gap before {batch.base_offset}")
        known = self.batches.setdefault((batch.epoch, batch.base_offset), (content, before))
        if known[0] != content or (before is not None and known[1] is not None and known[1] != before):
            raise Violation(
                f"log matching: node {key.node_id} has {content} after {before} at {batch.base_offset}, "
                f"another node has {known[0]} after {known[1]}"
            )
        shadow.log[batch.base_offset] = content

    def on_truncated(self, key: VoterKey, end_offset: int) -> None:
        shadow = self.shadow(key)
        if end_offset < shadow.delivered:
            raise Violation(f"node {key.node_id} truncates to {end_offset}, having delivered to {shadow.delivered}")
        for base in [base for base, batch in shadow.log.items() if batch[1] >= end_offset]:
            del shadow.log[base]

    def on_installed(self, key: VoterKey, snapshot_id: SnapshotId) -> None:
        """Expects the next batch at the end of the snapshot. The listeners of a node that had no space for its log can
        be beyond it, and do not get it then.
        """
        self.shadow(key).log.clear()

    # Deliveries to a node's listeners.

    def on_commit(self, key: VoterKey, batch: CommittedBatch, epoch: int) -> None:
        """Checks a commit. `epoch` is the node's; the batch was committed in that one or before."""
        shadow, content = self.shadow(key), _content(batch)
        if batch.base_offset != shadow.delivered:
            raise Violation(f"node {key.node_id} gets {batch.base_offset} after {shadow.delivered}")
        shadow.delivered = batch.last_offset + 1
        known = self.committed.get(batch.base_offset)
        if known is None:
            if batch.base_offset != self.committed_end:
                raise Violation(f"state machine safety: {content} at {batch.base_offset} overlaps committed batches")
            self.committed[batch.base_offset] = content
            self.committed_end = batch.last_offset + 1
            self.committed_in.append((epoch, batch.base_offset))
        elif known != content:
            raise Violation(
                f"state machine safety: node {key.node_id} gets {content} at {batch.base_offset}, others got {known}"
            )

    def on_snapshot(self, key: VoterKey, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        shadow = self.shadow(key)
        if snapshot_id.end_offset < shadow.delivered:
            raise Violation(f"node {key.node_id} goes back to a snapshot at {snapshot_id.end_offset}")
        expected = self.values_before(snapshot_id.end_offset)
        found = {record.name: record.value for record, _ in snapshot.records if isinstance(record, ConfigRecord)}
        if found != expected:
            raise Violation(f"node {key.node_id}: snapshot {snapshot_id} holds {found}, committed were {expected}")
        shadow.log.clear()
        shadow.delivered = snapshot_id.end_offset

    def values_before(self, end_offset: int) -> dict[str, str]:
        """Returns the values by name of all committed records before this offset. Raises Violation if no batch ends
        there.
        """
        values: dict[str, str] = {}
        end = 0
        for batch in self.committed.values():
            if batch[1] >= end_offset:
                break
            end = batch[1] + 1
            for value in batch[2]:
                if value.startswith("v"):
                    values[name_of(value)] = value
        if end != end_offset:
            raise Violation(f"a snapshot at {end_offset}, where no committed batch ends ({end})")
        return values

    # Votes, and the steps of the world.

    def on_answer(self, voter: VoterKey, request: Message, response: Message) -> None:
        if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse) or not response.topics:
            return
        requested, answer = request.topics[0].partitions[0], response.topics[0].partitions[0]
        if requested.pre_vote or not answer.vote_granted:
            return
        candidate = VoterKey(requested.replica_id, requested.replica_directory_id)
        self._note_vote(voter, requested.replica_epoch, candidate)

    def _note_vote(self, voter: VoterKey, epoch: int, candidate: VoterKey) -> None:
        known = self.votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise Violation(f"two votes: node {voter.node_id} in epoch {epoch} for {known} and {candidate}")

    def read_identity(self, key: VoterKey, node: RaftNode) -> None:
        shadow, epoch = self.shadow(key), node.epoch
        if epoch < shadow.epoch:
            raise Violation(f"node {key.node_id} goes back from epoch {shadow.epoch} to {epoch}")
        shadow.epoch = epoch
        if node.high_watermark < shadow.high_watermark:
            raise Violation(f"the high watermark of node {key.node_id} goes back")
        shadow.high_watermark = node.high_watermark
        role: Any = node.quorum.role
        if isinstance(role, Leader) and self.leaders.get(epoch) != key.node_id:
            if epoch in self.leaders:
                raise Violation(f"election safety: {self.leaders[epoch]} and {key.node_id} lead epoch {epoch}")
            self.leaders[epoch] = key.node_id
            self._note_vote(key, epoch, key)
            self._check_complete(key, shadow, epoch)

    def _check_complete(self, key: VoterKey, shadow: Shadow, epoch: int) -> None:
        """Checks that a leader has what was committed in earlier epochs; by log matching, the last batch of it is
        enough. (One that was paused when it had won can begin to lead after later epochs.)
        """
        base = next((base for then, base in reversed(self.committed_in) if then < epoch), None)
        if base is not None and shadow.log.get(base) != self.committed[base] and shadow.delivered <= base:
            raise Violation(
                f"leader completeness: node {key.node_id} leads epoch {epoch} without {self.committed[base]} at {base}"
            )

    def check_promises(self) -> None:
        for base_offset, value in self.promised.items():
            batch = self.committed.get(base_offset)
            if batch is None or value not in batch[2]:
                raise Violation(f"{value} was acknowledged at {base_offset}, committed is {batch}")


def name_of(value: str) -> str:
    """Returns the name that a value is proposed under: "v17" under "k1". There are only eight, so that the order
    matters."""
    return f"k{int(value[1:]) % 8}"
