"""One replica of one partition on this broker: its role, LEO, HW, ISR, and who waits for it.

Invariants
- Only `become_leader`, `become_follower` and `go_offline` change the role; only `_advance_high_watermark` and
  `become_*` change the HW.
- HW = least LEO of the maximal ISR (committed and proposed members), and it advances only while the ISR has at least
  min(min.insync.replicas, replication factor) members (KIP-966, section 6.5.2). It never goes back while leading.
- Nothing above the HW is shown to a consumer, whatever acks it was written with.
- A leader has written (leader epoch, LEO) into the epoch cache before its first append.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.replication.purgatory import Watcher
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log import AppendInfo, Log, Origin
from barnabas.storage.log_reads import LogRead


class Role(Enum):
    """What this replica is for clients and peers."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = "log end"  # a follower
    READ_UNCOMMITTED = "read_uncommitted"  # up to the HW
    READ_COMMITTED = "read_committed"  # up to the LSO


class Partition:
    """A replica and its leader's state. All offsets are record offsets; sizes are bytes."""

    __slots__ = (
        "_commit_waiters",
        "_watchers",
        "high_watermark",
        "image",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log",
        "node_id",
        "remote_leos",
        "role",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: bytes, log: Log, node_id: int, *, high_watermark: int = 0
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.role = Role.NONE
        self.image: PartitionImage | None = None
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        #: LEO of each other replica, as its last fetch said; -1 until it fetched in this epoch.
        self.remote_leos: dict[int, int] = {}
        self._watchers: dict[Watcher, None] = {}
        self._commit_waiters: list[tuple[int, Callable[[ErrorCode], None]]] = []

    # -- roles

    def become_leader(self, image: PartitionImage) -> None:
        """Lead in `image.leader_epoch`. The same epoch again only takes over the new ISR."""
        new_epoch = image.leader_epoch != self.leader_epoch or self.role is not Role.LEADER
        self.image = image
        if new_epoch:
            self.role = Role.LEADER
            self.leader_epoch = image.leader_epoch
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.remote_leos = {replica: -1 for replica in image.replicas if replica != self.node_id}
            self.log.assign_epoch(image.leader_epoch, self.log.log_end_offset)
        self._advance_high_watermark()

    def become_follower(self, image: PartitionImage) -> None:
        """Follow `image.leader` (or nobody, when it is -1)."""
        self.image = image
        self.role = Role.FOLLOWER
        self.leader_epoch = image.leader_epoch
        self.remote_leos = {}
        self._leave_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def go_offline(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Its log directory failed, or the partition is deleted: what waits here is answered with `code`."""
        self.role = Role.OFFLINE
        self._leave_leadership(code)

    def _leave_leadership(self, code: ErrorCode) -> None:
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, done in waiters:
            done(code)
        self.wake(0)

    # -- appending

    @property
    def enough_in_sync(self) -> bool:
        """Whether the ISR may take an acks=all write: min.insync.replicas, at most the replication factor."""
        image = self.image
        assert image is not None
        return len(image.isr) >= min(self.log.config.min_insync_replicas, len(image.replicas))

    @property
    def is_replicated(self) -> bool:
        """Whether the HW waits for other replicas."""
        return self.image is None or len(self.image.isr) != 1

    def append(self, batches: Buffer, wall_ms: int, origin: Origin) -> AppendInfo:
        """Append as leader. Raises RecordsRejected or StorageFault; the HW follows if this replica is alone in ISR."""
        info = self.log.append_as_leader(batches, self.leader_epoch, wall_ms=wall_ms, origin=origin)
        if not info.duplicate:
            self._advance_high_watermark(len(batches))
        return info

    def await_commit(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once the HW is at `offset` or above (at once if it is), or leadership is lost."""
        if self.high_watermark >= offset:
            done(ErrorCode.NONE)
        else:
            self._commit_waiters.append((offset, done))

    def _advance_high_watermark(self, appended_bytes: int = 0) -> None:
        image = self.image
        if image is None or self.role is not Role.LEADER:
            return
        target = self.log.log_end_offset
        if len(image.isr) > 1 or image.isr[:1] != (self.node_id,):
            if not self.enough_in_sync:
                return
            remote = self.remote_leos
            target = min((remote.get(replica, target) for replica in image.isr if replica != self.node_id), default=-1)
        if target <= self.high_watermark:
            return
        self.high_watermark = target
        if self._commit_waiters:
            self._commit_up_to(target)
        if self._watchers:
            self.wake(appended_bytes)

    def _commit_up_to(self, high_watermark: int) -> None:
        waiting = self._commit_waiters
        self._commit_waiters = [entry for entry in waiting if entry[0] > high_watermark]
        for offset, done in waiting:
            if offset <= high_watermark:
                done(ErrorCode.NONE)

    # -- reading

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Fencing of KIP-320: -1 asks for no check."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def readable_end(self, isolation: Isolation) -> int:
        """The offset before which this reader may see records."""
        if isolation is Isolation.READ_UNCOMMITTED:
            return self.high_watermark
        if isolation is Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, min_one_batch: bool
    ) -> LogRead | ColdRead | None:
        """Batches from the one that holds `offset`; None when there is nothing yet. What memory has not got is to be
        loaded beside the loop and then handed to `log.take`.

        Raises RequestFailed(OFFSET_OUT_OF_RANGE) below the log start offset or above the LEO.
        """
        log = self.log
        end = self.readable_end(isolation)
        if offset >= end:
            if offset > log.log_end_offset:
                raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
            if offset >= log.log_start_offset:
                return None
        with_aborted = isolation is Isolation.READ_COMMITTED
        return log.read_cached(offset, max_bytes, up_to=end, min_one_batch=min_one_batch, with_aborted=with_aborted)

    # -- who waits

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def wake(self, size_bytes: int) -> None:
        for watcher in tuple(self._watchers):
            watcher.on_progress(size_bytes)

    # -- log start

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset (KIP-107); -1 means the HW. Returns the new low watermark.

        Raises RequestFailed: OFFSET_OUT_OF_RANGE above the HW, POLICY_VIOLATION where cleanup.policy has no delete.
        """
        if not self.log.config.is_deletable:
            raise RequestFailed(ErrorCode.POLICY_VIOLATION, "Records of partition can not be deleted due to its policy")
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise RequestFailed(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot move the log start offset of {self.topic_partition} to {offset}: HW is {self.high_watermark}",
            )
        self.log.delete_records_before(target)
        self.wake(0)
        return self.log.log_start_offset
