"""What a leader answers to replicas that fetch, voters and observers alike (KIP-595, KIP-630, KIP-1166).

    the replica's end is in this log              records from there on; if there are none, the answer waits
    its last epoch ended earlier here             the diverging epoch: where to truncate
    its end is before this log's start            the id of the latest snapshot

An answer that waits goes out when records were appended, when the high watermark has passed the one that the replica
knows, when this node leads no more, or when the replica's time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer, Timer
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.metadata.refusing import read_refusing
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from barnabas.raft.core import Core
from barnabas.raft.messages import FETCH_BYTES_MAX, node_endpoints, only_partition
from barnabas.raft.quorum import Leader
from barnabas.raft.snapshots import SnapshotId
from barnabas.raft.voters import VoterKey

AnswerReply = Callable[[Message], None]


class _Waiting:
    __slots__ = ("asked", "is_refusing", "listener", "max_bytes", "replica", "reply", "timer")

    def __init__(self, replica: VoterKey, asked: Any, max_bytes: int, listener: str, reply: AnswerReply) -> None:
        self.replica = replica
        self.max_bytes = min(max_bytes, FETCH_BYTES_MAX)
        self.asked = asked
        self.listener = listener
        self.reply = later(reply)
        self.timer: Timer | None = None
        #: The replica says that its log takes no records for now.
        self.is_refusing = False


class FetchAnswers:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: list[_Waiting] = []
        #: Called when a replica was heard of, and with whether the high watermark has moved by it.
        self.on_replica: Callable[[VoterKey, bool], None] = lambda key, moved: None

    # Fetch.

    def fetch(self, request: FetchRequest, listener: str, reply: AnswerReply) -> None:
        core = self._core
        asked = only_partition(request)
        if core.is_other_cluster(request.cluster_id):
            reply(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        if asked is None:
            reply(FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        last_epoch = asked.last_fetched_epoch
        if request.max_wait_ms < 0 or asked.fetch_offset < 0 or not 0 <= last_epoch <= asked.current_leader_epoch:
            reply(self._response(self._partition(ErrorCode.INVALID_REQUEST), listener))
            return
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        waiting = _Waiting(VoterKey(replica_id, asked.replica_directory_id), asked, request.max_bytes, listener, reply)
        waiting.is_refusing = bool(read_refusing(request.unknown_tags))
        partition = self._complete(waiting)
        if partition is not None:
            reply(self._response(partition, listener))
        elif request.max_wait_ms == 0:
            reply(self._response(self._partition(ErrorCode.NONE), listener))
        else:
            waiting.timer = core.host.timers.call_later(request.max_wait_ms, lambda: self._expire(waiting))
            self._waiting.append(waiting)

    def wake(self) -> None:
        """Something was appended or committed, or the role has changed: answer whom there is something to tell."""
        for waiting in tuple(self._waiting):
            partition = self._complete(waiting, is_news=False)
            if partition is not None and waiting in self._waiting:
                self._waiting.remove(waiting)
                assert waiting.timer is not None, "whoever waits has a deadline"
                waiting.timer.cancel()
                waiting.reply(self._response(partition, waiting.listener))

    def _expire(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            partition = self._complete(waiting, is_news=False) or self._partition(ErrorCode.NONE)
            waiting.reply(self._response(partition, waiting.listener))

    def _complete(self, waiting: _Waiting, *, is_news: bool = True) -> FetchResponse.PartitionData | None:
        """The answer, or None if there is nothing to tell yet. `is_news`: the replica has just asked."""
        core = self._core
        asked = waiting.asked
        code = core.leader_only(asked.current_leader_epoch)
        if code:
            return self._partition(code)
        offset = asked.fetch_offset
        leader = core.quorum.role
        assert isinstance(leader, Leader)
        other = self._where_else(offset, asked.last_fetched_epoch)
        if other is not None:
            return other
        if is_news and waiting.replica.node_id >= 0 and waiting.replica.node_id != core.own.node_id:
            moved = leader.progress.on_fetch(waiting.replica, offset, core.log.end_offset, core.now_ms)
            state = leader.progress.state_of(waiting.replica)
            if state is not None:
                state.is_refusing = waiting.is_refusing
            core.warn_of_doubles(leader.progress.doubled())
            self.on_replica(waiting.replica, moved)
            if core.quorum.role is not leader:
                return self._partition(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if offset < core.log.end_offset:
            return self._partition(ErrorCode.NONE, records=core.log.read(offset, waiting.max_bytes))
        if leader.progress.high_watermark > asked.high_watermark:
            return self._partition(ErrorCode.NONE)
        return None

    def _where_else(self, offset: int, last_epoch: int) -> FetchResponse.PartitionData | None:
        """The answer to a replica that cannot go on from (`offset`, `last_epoch`); None if it can."""
        log = self._core.log
        start = log.start_offset
        snapshots = [known for known in self._core.files.list() if known.end_offset > 0 and known.end_offset >= start]
        if offset == 0 and snapshots:
            return self._snapshot(snapshots[-1])
        if offset == 0 and start == 0:
            return None
        first = next((known for known in snapshots if known.end_offset == start), None)
        is_older = last_epoch < log.first_epoch
        if snapshots and (offset < start or (is_older and (first is None or last_epoch < first.epoch))):
            return self._snapshot(snapshots[-1])
        if is_older and first is not None:
            # The log begins with a later epoch than the snapshot before it ended with: that one ended there.
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
        topic, asked = request.topics[0], request.topics[0].partitions[0]
        answer = FetchSnapshotResponse.PartitionSnapshot(
            index=asked.partition,
            snapshot_id=FetchSnapshotResponse.SnapshotId(
                end_offset=asked.snapshot_id.end_offset, epoch=asked.snapshot_id.epoch
            ),
            unaligned_records=b"",
        )
        if only_partition(request) is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            answer.current_leader = FetchSnapshotResponse.LeaderIdAndEpoch(
                leader_id=core.quorum.leader_id, leader_epoch=core.quorum.epoch
            )
            answer.error_code = core.leader_only(asked.current_leader_epoch) or self._read_piece(request, asked, answer)
        return FetchSnapshotResponse(
            topics=[FetchSnapshotResponse.TopicSnapshot(name=topic.name, partitions=[answer])],
            node_endpoints=node_endpoints(FetchSnapshotResponse, core.quorum.leader_id, core.leader_address(listener)),
        )

    def _read_piece(
        self,
        request: FetchSnapshotRequest,
        asked: FetchSnapshotRequest.PartitionSnapshot,
        answer: FetchSnapshotResponse.PartitionSnapshot,
    ) -> ErrorCode:
        """Fill `answer`, or say why not."""
        core = self._core
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if snapshot_id.end_offset <= 0 or not core.files.exists(snapshot_id):
            # The first voters' snapshot is not replicated: the first leader writes them into the log.
            return ErrorCode.SNAPSHOT_NOT_FOUND
        size_bytes = core.files.size(snapshot_id)
        if not 0 <= asked.position < size_bytes:
            return ErrorCode.POSITION_OUT_OF_RANGE
        answer.size, answer.position = size_bytes, asked.position
        answer.unaligned_records = core.files.read_slice(snapshot_id, asked.position, min(request.max_bytes, 1 << 30))
        if request.replica_id >= 0 and request.replica_id != core.own.node_id:
            self.on_replica(VoterKey(request.replica_id, asked.replica_directory_id), False)
        return ErrorCode.NONE
