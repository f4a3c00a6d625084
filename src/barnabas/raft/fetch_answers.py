"""A leader's responses to the fetches of replicas, voters and observers alike (KIP-595, KIP-630, KIP-1166).

    the replica's end is in this log              records from there on; without any, the response is delayed
    its last epoch ended earlier here             the diverging epoch: where to truncate
    its end is before this log's start            the id of the latest snapshot

A delayed response is sent when records were appended, when the high watermark is above the one that the replica knows,
when this node no longer leads, or when the replica's maximum wait is over. Every response is sent at the end of its
event at the earliest: what the fetch committed is delivered by then, and the response includes what was proposed in
reaction.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer, Timer
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.metadata.unwritable import read_unwritable
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from barnabas.raft.core import Core
from barnabas.raft.leading import Leading
from barnabas.raft.messages import FETCH_BYTES_MAX, node_endpoints, only_partition
from barnabas.raft.quorum import Leader
from barnabas.raft.ready import Answer, AnswerReply
from barnabas.raft.snapshots import SnapshotId
from barnabas.raft.voters import VoterKey


class _Waiting:
    """A fetch without a response yet."""

    __slots__ = (
        "is_noted",
        "listener",
        "max_bytes",
        "max_wait_ms",
        "redirect",
        "replica",
        "reply",
        "requested",
        "timer",
    )

    def __init__(
        self, replica: VoterKey, requested: Any, request: FetchRequest, listener: str, reply: AnswerReply
    ) -> None:
        self.replica = replica
        self.max_bytes = min(request.max_bytes, FETCH_BYTES_MAX)
        self.max_wait_ms = request.max_wait_ms
        self.requested = requested
        self.listener = listener
        self.reply = later(reply)
        #: Whether this node led when the fetch arrived; then `redirect` is set if the replica cannot continue.
        self.is_noted = False
        self.redirect: FetchResponse.PartitionData | None = None
        #: The end of the delay; None until the fetch has to wait.
        self.timer: Timer | None = None


class FetchAnswers:
    """The fetches of replicas whose responses are delayed."""

    def __init__(self, core: Core, leading: Leading) -> None:
        self._core = core
        self._leading = leading
        #: Fetches of this event, which have not been checked yet.
        self._new_fetches: list[_Waiting] = []
        self._waiting: list[_Waiting] = []

    # Fetch.

    def fetch(self, request: FetchRequest, listener: str, reply: AnswerReply) -> None:
        """Records how far the replica has the log. `reply` is called with the response, at the end of this event or
        later.
        """
        core = self._core
        requested = only_partition(request)
        if core.is_other_cluster(request.cluster_id):
            core.draft.answer(reply, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        if requested is None:
            core.draft.answer(reply, FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        last_epoch = requested.last_fetched_epoch
        if (
            request.max_wait_ms < 0
            or requested.fetch_offset < 0
            or not 0 <= last_epoch <= requested.current_leader_epoch
        ):
            core.draft.answer(reply, self._response(self._partition(ErrorCode.INVALID_REQUEST), listener))
            return
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        waiting = _Waiting(VoterKey(replica_id, requested.replica_directory_id), requested, request, listener, reply)
        self._note(waiting, is_unwritable=bool(read_unwritable(request.unknown_tags)))
        self._new_fetches.append(waiting)
        core.draft.fetch()

    def _note(self, waiting: _Waiting, *, is_unwritable: bool) -> None:
        """Records how far the replica has the log, if this node is its leader and the replica has the same records."""
        core, requested, replica = self._core, waiting.requested, waiting.replica
        if core.leader_only(requested.current_leader_epoch):
            return
        waiting.is_noted = True
        waiting.redirect = self._redirect_for(requested.fetch_offset, requested.last_fetched_epoch)
        if waiting.redirect is not None or replica.node_id < 0 or replica.node_id == core.own.node_id:
            return
        leader = core.quorum.role
        assert isinstance(leader, Leader)
        moved = leader.progress.on_fetch(replica, requested.fetch_offset, core.log.end_offset, core.now_ms)
        state = leader.progress.state_of(replica)
        if state is not None:
            state.is_unwritable = is_unwritable
        core.report_duplicate_ids(leader.progress.duplicate_ids())
        self._leading.on_replica(replica, moved=moved)

    def due(self, *, has_changes: bool) -> list[Answer]:
        """Returns the responses that can be sent now.

        Checks the fetches of this event and, if `has_changes` (records appended or committed, or a new role), the
        delayed ones too.
        """
        answers: list[Answer] = []
        if has_changes:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                self._send_or_wait(one, self._complete(one), answers)
        requested, self._new_fetches = self._new_fetches, []
        for one in requested:
            partition = self._answer_for(one, one.redirect) if one.is_noted else self._complete(one)
            if partition is None and one.max_wait_ms == 0:
                partition = self._partition(ErrorCode.NONE)
            self._send_or_wait(one, partition, answers)
        return answers

    def _send_or_wait(
        self, waiting: _Waiting, partition: FetchResponse.PartitionData | None, answers: list[Answer]
    ) -> None:
        if partition is not None:
            if waiting.timer is not None:
                waiting.timer.cancel()
            answers.append(Answer(waiting.reply, self._response(partition, waiting.listener)))
            return
        if waiting.timer is None:
            waiting.timer = self._core.timers.call_later(waiting.max_wait_ms, partial(self._expire, waiting))
        self._waiting.append(waiting)

    def _expire(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            partition = self._complete(waiting) or self._partition(ErrorCode.NONE)
            self._core.draft.answer(waiting.reply, self._response(partition, waiting.listener))

    def _complete(self, waiting: _Waiting) -> FetchResponse.PartitionData | None:
        """Returns the response to a waiting fetch, or None if there is nothing to return yet."""
        requested = waiting.requested
        code = self._core.leader_only(requested.current_leader_epoch)
        redirect = None if code else self._redirect_for(requested.fetch_offset, requested.last_fetched_epoch)
        return self._answer_for(waiting, redirect)

    def _answer_for(
        self, waiting: _Waiting, redirect: FetchResponse.PartitionData | None
    ) -> FetchResponse.PartitionData | None:
        """Returns the response to a waiting fetch, None if there is nothing to return yet. `redirect` is the response
        to a replica that cannot continue from its offset.
        """
        core, requested = self._core, waiting.requested
        code = core.leader_only(requested.current_leader_epoch)
        if code:
            return self._partition(code)
        if redirect is not None:
            return redirect
        offset, leader = requested.fetch_offset, core.quorum.role
        assert isinstance(leader, Leader)
        if offset < core.log.end_offset:
            records = core.guard(lambda: core.log.read(offset, waiting.max_bytes))
            return self._partition(ErrorCode.NONE, records=records)
        if leader.progress.high_watermark > requested.high_watermark:
            return self._partition(ErrorCode.NONE)
        return None

    def _redirect_for(self, offset: int, last_epoch: int) -> FetchResponse.PartitionData | None:
        """Returns the response to a replica that cannot continue from (`offset`, `last_epoch`), or None if it can."""
        log = self._core.log
        start = log.start_offset
        files = self._core.guard(self._core.files.list)
        snapshots = [known for known in files if known.end_offset > 0 and known.end_offset >= start]
        if offset == 0 and snapshots:
            return self._snapshot(snapshots[-1])
        if offset == 0 and start == 0:
            return None
        first = next((known for known in snapshots if known.end_offset == start), None)
        is_older = last_epoch < log.first_epoch
        if snapshots and (offset < start or (is_older and (first is None or last_epoch < first.epoch))):
            return self._snapshot(snapshots[-1])
        if is_older and first is not None:
            # The log begins with a later epoch than the last one in the snapshot before it, so that one ended there.
            epoch, end_offset = first.epoch, start
        else:
            epoch, end_offset = log.end_of_epoch(last_epoch)
        if epoch == last_epoch and offset <= end_offset:
            return None
        diverging = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return self._partition(ErrorCode.NONE, diverging_epoch=diverging)

    def _snapshot(self, snapshot_id: SnapshotId) -> FetchResponse.PartitionData:
        shown = FetchResponse.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
        return self._partition(ErrorCode.NONE, snapshot_id=shown)

    def _partition(
        self,
        code: ErrorCode,
        *,
        records: Buffer | None = None,
        diverging_epoch: FetchResponse.EpochEndOffset | None = None,
        snapshot_id: FetchResponse.SnapshotId | None = None,
    ) -> FetchResponse.PartitionData:
        core = self._core
        role = core.quorum.role
        known = isinstance(role, Leader) and code is ErrorCode.NONE
        return FetchResponse.PartitionData(
            error_code=code,
            high_watermark=role.progress.high_watermark if isinstance(role, Leader) and known else -1,
            log_start_offset=core.log.start_offset,
            records=b"" if records is None else records,
            diverging_epoch=diverging_epoch,
            snapshot_id=snapshot_id,
            current_leader=FetchResponse.LeaderIdAndEpoch(
                leader_id=core.quorum.leader_id, leader_epoch=core.quorum.epoch
            ),
        )

    def _response(self, partition: FetchResponse.PartitionData, listener: str) -> FetchResponse:
        core = self._core
        return FetchResponse(
            responses=[
                FetchResponse.FetchableTopicResponse(
                    topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
                )
            ],
            node_endpoints=node_endpoints(FetchResponse, core.quorum.leader_id, core.leader_address(listener)),
        )

    # FetchSnapshot.

    def fetch_snapshot(self, request: FetchSnapshotRequest, listener: str) -> FetchSnapshotResponse:
        core = self._core
        if core.is_other_cluster(request.cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        topic, requested = request.topics[0], request.topics[0].partitions[0]
        answer = FetchSnapshotResponse.PartitionSnapshot(
            index=requested.partition,
            snapshot_id=FetchSnapshotResponse.SnapshotId(
                end_offset=requested.snapshot_id.end_offset, epoch=requested.snapshot_id.epoch
            ),
            unaligned_records=b"",
        )
        if only_partition(request) is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            answer.current_leader = FetchSnapshotResponse.LeaderIdAndEpoch(
                leader_id=core.quorum.leader_id, leader_epoch=core.quorum.epoch
            )
            answer.error_code = core.leader_only(requested.current_leader_epoch) or core.guard(
                lambda: self._read_piece(request, requested, answer)
            )
        return FetchSnapshotResponse(
            topics=[FetchSnapshotResponse.TopicSnapshot(name=topic.name, partitions=[answer])],
            node_endpoints=node_endpoints(FetchSnapshotResponse, core.quorum.leader_id, core.leader_address(listener)),
        )

    def _read_piece(
        self,
        request: FetchSnapshotRequest,
        requested: FetchSnapshotRequest.PartitionSnapshot,
        answer: FetchSnapshotResponse.PartitionSnapshot,
    ) -> ErrorCode:
        """Fills `answer` with a part of the requested snapshot, and returns an error code."""
        core = self._core
        snapshot_id = SnapshotId(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
        if snapshot_id.end_offset <= 0 or not core.files.exists(snapshot_id):
            # The snapshot with the first voters is not replicated: the first leader writes them to the log.
            return ErrorCode.SNAPSHOT_NOT_FOUND
        size_bytes = core.files.size(snapshot_id)
        if not 0 <= requested.position < size_bytes:
            return ErrorCode.POSITION_OUT_OF_RANGE
        answer.size, answer.position = size_bytes, requested.position
        answer.unaligned_records = core.files.read_slice(
            snapshot_id, requested.position, min(request.max_bytes, 1 << 30)
        )
        if request.replica_id >= 0 and request.replica_id != core.own.node_id:
            self._leading.on_replica(VoterKey(request.replica_id, requested.replica_directory_id), moved=False)
        return ErrorCode.NONE
