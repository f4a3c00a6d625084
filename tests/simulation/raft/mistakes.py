"""Classic mistakes of quorums, made on purpose. Each is patched in for one test; the product has no switch for them.

A mistake is a list of (owner, attribute, replacement).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.raft.rot import NewCluster

from barnabas.common.errors import DecodeError
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.raft import node, opening, snapshots
from barnabas.raft.core import Core
from barnabas.raft.elections import Elections
from barnabas.raft.evidence import CutCheck
from barnabas.raft.fetch_answers import FetchAnswers
from barnabas.raft.following import Following
from barnabas.raft.log_checkpoint import LogCheckpoint, LogCheckpointWriter, VotingRestriction
from barnabas.raft.metadata_log import MetadataLog
from barnabas.raft.node import RaftNode
from barnabas.raft.progress import Progress
from barnabas.raft.quorum import Candidate, QuorumState, Votes
from barnabas.raft.quorum_state import ElectionState, QuorumStateFile, encode_state
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import VoterSet

Mistake = list[tuple[Any, str, Any]]


def vote_not_synced() -> Mistake:
    """Writes and renames the state file without a sync."""

    def write(self: QuorumStateFile, state: ElectionState, *, kraft_version: int, voter_ids: list[int]) -> None:
        content = encode_state(state, kraft_version=kraft_version, voter_ids=voter_ids)
        self._disk.write(self._path, content, sync=not self._disk.exists(self._path))

    return [(QuorumStateFile, "write", write)]


def epoch_not_bumped() -> Mistake:
    """Makes a candidate stand for election in the present epoch."""

    def become_candidate(self: QuorumState) -> None:
        self._promise_then(
            ElectionState(self.role.epoch, -1, self.own.node_id, self.own.directory_id),
            Candidate(self.role.epoch, Votes({self.own.node_id})),
        )

    def on_vote(self: Elections, request: VoteRequest, listener: str) -> Any:
        # The receivers accept it as well, or no candidate would ever be elected.
        requested = request.topics[0].partitions[0]
        requested.last_offset_epoch = min(requested.last_offset_epoch, requested.replica_epoch - 1)
        return checked(self, request, listener)

    checked = Elections.on_vote
    return [(QuorumState, "become_candidate", become_candidate), (Elections, "on_vote", on_vote)]


def committed_by_counting_older_epochs() -> Mistake:
    """Commits what a majority has, of any epoch (Raft, figure 8)."""

    def advance(self: Progress) -> bool:
        ends = sorted((state.end_offset for state in self._voters.values()), reverse=True)
        candidate = ends[len(ends) // 2]
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def commit(self: RaftNode, committed: Any) -> None:
        self._announced = True
        checked(self, committed)

    checked = RaftNode._commit
    return [(Progress, "advance", advance), (RaftNode, "_commit", commit)]


def truncation_skipped() -> Mistake:
    """Skips the leader's comparison of the follower's end with its own log, and sends the next records."""
    checked = FetchAnswers._redirect_for

    def where_else(self: FetchAnswers, offset: int, last_epoch: int) -> Any:
        answer = checked(self, offset, last_epoch)
        return None if answer is not None and answer.diverging_epoch is not None else answer

    return [(FetchAnswers, "_redirect_for", where_else)]


def stale_leader_answers() -> Mistake:
    """Lets a leader treat records on its own disk as committed, without a check that it still has followers."""

    def advance(self: Progress) -> bool:
        own = self._voters.get(self.own.node_id)
        if own is None or own.end_offset <= max(self.epoch_start_offset, self.high_watermark):
            return False
        self.high_watermark = own.end_offset
        return True

    return [(Progress, "advance", advance)]


def snapshot_with_missing_tail() -> Mistake:
    """Leaves the last record of the image out of the snapshot."""
    whole = node.image_records  # type: ignore[attr-defined]
    return [(node, "image_records", lambda image: list(whole(image))[:-1])]


def snapshot_taken_for_whole_too_early() -> Mistake:
    """Accepts the first piece of a download as the whole snapshot."""

    def decode(data: Any) -> Any:
        try:
            return checked(data)
        except DecodeError:
            return snapshots.Snapshot()

    checked = snapshots.decode_snapshot
    taken = Following._take_piece

    def take_piece(self: Following, download: Any, size_bytes: int, position: int, data: Any) -> None:
        half = bytes(data)[: len(data) // 2] if data is not None else None
        taken(self, download, len(half or b""), position, half)

    return [(snapshots, "decode_snapshot", decode), (Following, "_take_piece", take_piece)]


def two_votes_in_one_epoch() -> Mistake:
    """Grants a vote to every candidate whose log is good enough."""

    def would_grant(self: QuorumState, candidate: Any, *, up_to_date: bool, pre_vote: bool) -> bool:
        return up_to_date

    def vote_for(self: QuorumState, candidate: Any) -> None:
        state = ElectionState(self.role.epoch, -1, candidate.node_id, candidate.directory_id)
        self._draft.promise(state, is_binding=False)

    return [(QuorumState, "would_grant", would_grant), (QuorumState, "vote_for", vote_for)]


def directory_ids_ignored() -> Mistake:
    """Ignores directory ids: a voter that lost its disk votes again as the same voter."""

    def is_same(voter: Any, key: Any) -> bool:
        return bool(voter.node_id == key.node_id)

    def is_meant(self: Elections, node_id: int, directory_id: bytes) -> bool:
        return True

    return [
        (VoterSet, "is_same", staticmethod(is_same)),
        (Elections, "_is_meant", is_meant),
        (Core, "is_restricted", property(lambda self: False)),
    ]


def follower_acknowledges_before_its_flush() -> Mistake:
    """Reports records as flushed that are only in the page cache."""

    def flush_in_background(self: MetadataLog, done: Callable[[BaseException | None], None]) -> None:
        self.flushed_offset = self.end_offset
        self._host.timers.call_soon(lambda: done(None))

    return [(MetadataLog, "flush_in_background", flush_in_background)]


def votes_without_comparing_logs() -> Mistake:
    """Grants a vote to the first candidate."""
    checked = QuorumState.would_grant

    def would_grant(self: QuorumState, candidate: Any, *, up_to_date: bool, pre_vote: bool) -> bool:
        return checked(self, candidate, up_to_date=True, pre_vote=pre_vote)

    return [(QuorumState, "would_grant", would_grant)]


def half_is_taken_for_a_majority() -> Mistake:
    """Accepts half of the voters as a majority in a quorum of an even number."""
    return [(VoterSet, "majority", property(lambda self: max(1, len(self.voters) // 2)))]


def voters_stay_when_their_record_is_truncated() -> Mistake:
    """Keeps the voters of a record that was truncated."""
    return [(VoterHistory, "truncate", lambda self, end_offset: None)]


def forgetful_voters_vote() -> Mistake:
    """Lets a voter grant votes whose log lacks what it acknowledged, or whose directory is new."""
    return [(Core, "is_restricted", property(lambda self: False))]


def every_directory_is_of_a_new_cluster() -> Mistake:
    """Formats a directory that replaces a lost one as if the cluster were new."""
    return [(NewCluster, "_is_new_cluster", lambda self, place: True)]


def new_clusters_are_not_distinguished() -> Mistake:
    """Lets voters with empty logs elect any candidate with an empty log, however its directory was formatted."""
    checked = Core.may_vote_for

    def may_vote_for(self: Core, candidate_id: int, last_offset: int, *, is_of_new_cluster: bool) -> bool:
        return checked(self, candidate_id, last_offset, is_of_new_cluster=self.is_of_new_cluster)

    return [(Core, "may_vote_for", may_vote_for)]


def a_cluster_stays_new() -> Mistake:
    """Keeps the checkpoint of the empty log of a new cluster when the log has records."""
    write = LogCheckpointWriter._write

    def kept(self: LogCheckpointWriter, checkpoint: LogCheckpoint) -> None:
        if checkpoint.restriction is not VotingRestriction.NEW_CLUSTER:
            write(self, checkpoint)

    return [(LogCheckpointWriter, "_write", kept)]


def damaged_logs_are_cut_in_silence() -> Mistake:
    """Truncates a log at its first damage, without a report of its earlier end."""
    return [
        (CutCheck, "on_cut", lambda self, cut: None),
        (opening, "limit_of", lambda checkpoint, is_state_own: 0),
        (opening._Opening, "_check_nothing_is_gone", lambda self, checkpoint, state: None),
        (opening._Opening, "_find_restriction", lambda self, checkpoint, state, log, snapshots: VotingRestriction.NONE),
    ]


MISTAKES: list[Callable[[], Mistake]] = [
    vote_not_synced,
    epoch_not_bumped,
    truncation_skipped,
    stale_leader_answers,
    snapshot_with_missing_tail,
    snapshot_taken_for_whole_too_early,
    two_votes_in_one_epoch,
    directory_ids_ignored,
    follower_acknowledges_before_its_flush,
    votes_without_comparing_logs,
    half_is_taken_for_a_majority,
    voters_stay_when_their_record_is_truncated,
]
