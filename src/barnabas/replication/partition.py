"""One replica of one partition on this broker: its role, LEO, HW, ISR, and who waits for it.

Invariants
- Only `become_leader`, `become_follower` and `go_offline` change the role; only `_advance_high_watermark`, `become_*`
  and what a leader tells its follower change the HW.
- HW = least LEO of the maximal ISR (`replication.leadership`), and it advances only while the ISR has at least
  min(min.insync.replicas, replication factor) members (KIP-966, section 6.5.2). It never goes back while leading.
- Nothing above the HW is shown to a consumer, whatever acks it was written with.
- A leader has written (leader epoch, LEO) into the epoch cache before its first append.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import RECOVERING, PartitionImage
from barnabas.records.deferred import DeferredValidation
from barnabas.replication.commit_waiters import CommitWaiter, CommitWaiters
from barnabas.replication.isr_sightings import sighted
from barnabas.replication.leadership import UNKNOWN, Leadership
from barnabas.replication.purgatory import StartWatcher, Watcher
from barnabas.replication.traffic import TopicTraffic
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log import AppendInfo, Log, Origin
from barnabas.storage.log_reads import LogRead


class Surroundings(Protocol):
    """What the replicas of one broker share."""

    @property
    def lag_ms_max(self) -> int:
        """`replica.lag.time.max.ms`."""

    def now_ms(self) -> int: ...

    def may_join(self, broker_id: int, broker_epoch: int, directory: bytes) -> bool:
        """Whether this incarnation of a broker may be in an ISR with a replica in that directory: unfenced, not on its
        way out, and not without room to write."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether it is registered and unfenced."""

    def expect_followers(self, partition: Partition) -> None:
        """It is led here in a new epoch: its followers will want to fetch it."""

    @property
    def tells_high_watermark(self) -> bool:
        """Whether followers are to hear of a new HW at once, for they serve consumers (KIP-392)."""

    def propose(self, partition: Partition) -> None:
        """Its leadership has a proposal for the controller."""

    def wake_followers_soon(self, partition: Partition, size_bytes: int) -> None:
        """Records were appended: `wake_followers` when the event at hand is over, once for all that it brings."""

    def witnessed(self, partition: Partition, what: str, **facts: int) -> None:
        """Something of this replica that no other node can know, for the journal."""


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
        "_end_watchers",
        "_surroundings",
        "_watchers",
        "high_watermark",
        "image",
        "leader_epoch",
        "leadership",
        "log",
        "node_id",
        "role",
        "start_watchers",
        "topic_id",
        "topic_partition",
        "traffic",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: Log,
        node_id: int,
        surroundings: Surroundings,
        *,
        high_watermark: int = 0,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.traffic = traffic or TopicTraffic()
        self.topic_id = topic_id
        self.node_id = node_id
        self._surroundings = surroundings
        self.role = Role.NONE
        self.image: PartitionImage | None = None
        self.leader_epoch = -1
        #: Of the present leader epoch, while this replica leads.
        self.leadership: Leadership | None = None
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._watchers: dict[Watcher, None] = {}
        #: Followers: they wait for the LEO, not for the HW.
        self._end_watchers: dict[Watcher, None] = {}
        self._commit_waiters = CommitWaiters()
        #: Who waits for the low watermark, told when it may have moved and when the leadership is lost.
        self.start_watchers: dict[StartWatcher, None] = {}
        self.log = log
        log.signals.watch_start(lambda: _note(self._watchers, self._end_watchers))

    # -- roles

    def become_leader(self, image: PartitionImage) -> None:
        """Lead in `image.leader_epoch`. The same epoch again only takes over the new ISR."""
        self.image = image
        leadership, now_ms = self.leadership, self._surroundings.now_ms()
        if leadership is None or image.leader_epoch != self.leader_epoch:
            if image.leader_recovery_state == RECOVERING:
                self._surroundings.witnessed(self, "unclean-leader", log_end_offset=self.log.log_end_offset)
            self.role = Role.LEADER
            self.leader_epoch = image.leader_epoch
            self.log.assign_epoch(image.leader_epoch, self.log.log_end_offset)
            self.leadership = Leadership(self.node_id, image, self.log.log_end_offset, now_ms)
            if not self.leadership.is_alone:
                self._surroundings.expect_followers(self)
            self.wake_consumers(0)
        else:
            leadership.on_image(image, now_ms)
        _note(self._watchers, self._end_watchers)
        self._advance_high_watermark()

    def become_follower(self, image: PartitionImage) -> None:
        """Follow `image.leader` (or nobody, when it is -1)."""
        self.image = image
        self.role = Role.FOLLOWER
        self.leader_epoch = image.leader_epoch
        self._leave_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def go_offline(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Its log directory failed, or the partition is deleted: what waits here is answered with `code`."""
        self.role = Role.OFFLINE
        self._leave_leadership(code)

    def _leave_leadership(self, code: ErrorCode) -> None:
        self.leadership = None
        for done in self._commit_waiters.take():
            done(code)
        self.wake(0)
        self._wake_start_watchers()

    # -- appending

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The ISR as the controller has decided it."""
        if self.leadership is not None:
            return self.leadership.isr
        return () if self.image is None else self.image.isr

    @property
    def enough_in_sync(self) -> bool:
        """Whether the ISR may take an acks=all write: min.insync.replicas, at most the replication factor."""
        leadership = self.leadership
        assert leadership is not None, "only a leader takes writes"
        return len(leadership.isr) >= min(self.log.config.min_insync_replicas, leadership.replication_factor)

    @property
    def is_end_known(self) -> bool:
        """Whether the HW is at least what it was under any earlier leader (KIP-207)."""
        return self.leadership is not None and self.high_watermark >= self.leadership.epoch_start_offset

    @property
    def is_replicated(self) -> bool:
        """Whether the HW waits for other replicas."""
        return self.leadership is None or not self.leadership.is_alone

    def append(
        self, batches: Buffer, wall_ms: int, origin: Origin, validated: DeferredValidation | None = None
    ) -> AppendInfo:
        """Append as leader. Raises RecordsRejected, ValidationDeferred or StorageFault; the HW follows if this replica
        is alone in ISR."""
        info = self.log.append_as_leader(
            batches, self.leader_epoch, wall_ms=wall_ms, origin=origin, validated=validated
        )
        if not info.duplicate:
            self._advance_high_watermark(len(batches))
            if self._end_watchers:
                self._surroundings.wake_followers_soon(self, len(batches))
        return info

    def await_commit(self, offset: int, done: Callable[[ErrorCode], None]) -> CommitWaiter | None:
        """Call `done` once the HW is at `offset` or above (at once if it is: then None is returned), or leadership is
        lost. With NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR is too small by then."""
        if self.high_watermark >= offset:
            done(self._verdict())
            return None
        return self._commit_waiters.add(offset, done)

    def _verdict(self) -> ErrorCode:
        return ErrorCode.NONE if self.enough_in_sync else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def _advance_high_watermark(self, appended_bytes: int = 0) -> None:
        leadership = self.leadership
        if leadership is None:
            return
        target = self.log.log_end_offset
        if not leadership.is_alone:
            if not self.enough_in_sync:
                return
            around = self._surroundings
            target = leadership.high_watermark(target, around.now_ms(), around.lag_ms_max, around.may_join)
        if target <= self.high_watermark:
            return
        self.high_watermark = target
        if self._end_watchers:
            if self._surroundings.tells_high_watermark:
                self.wake_followers(0)
            else:
                _note(self._end_watchers)
        if self._commit_waiters:
            verdict = self._verdict()
            for done in self._commit_waiters.take(target):
                done(verdict)
        if self._watchers:
            self.wake_consumers(appended_bytes)

    # -- followers, as the leader sees them

    def on_follower_fetch(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> bool:
        """A follower has everything before `offset`. False if it is none of this partition's."""
        leadership, around = self.leadership, self._surroundings
        if leadership is None:
            return False
        now_ms = around.now_ms()
        end_offset = self.log.log_end_offset
        if not leadership.on_fetch(replica_id, offset, log_start_offset, broker_epoch, end_offset, now_ms):
            return False
        if self.start_watchers:
            self._wake_start_watchers()
        if replica_id not in leadership.isr:
            enlarged = leadership.enlarged(replica_id, self.high_watermark, around.may_join)
            if enlarged is not None:
                leadership.propose(enlarged)
                leadership.seen = sighted(leadership, end_offset, now_ms)
                around.propose(self)
        self._advance_high_watermark()
        return True

    def shrink_isr(self) -> None:
        """Propose an ISR without the members that lag, if there are any."""
        leadership, around = self.leadership, self._surroundings
        if leadership is None or leadership.is_alone:
            return
        end_offset, now_ms = self.log.log_end_offset, around.now_ms()
        reduced = leadership.reduced(end_offset, now_ms, around.lag_ms_max)
        if reduced is not None:
            leadership.propose(reduced)
            leadership.seen = sighted(leadership, end_offset, now_ms)
            around.propose(self)

    def on_isr_committed(self) -> None:
        """The controller accepted what was proposed."""
        _note(self._watchers, self._end_watchers)
        self._advance_high_watermark()

    # -- following

    def append_as_follower(self, records: Buffer, high_watermark: int, log_start_offset: int) -> None:
        """Take what the leader sent: records as they are, its HW as far as they go, its log start offset. Raises
        RecordsRejected or StorageFault."""
        log = self.log
        if len(records):
            log.append_as_follower(records)
            self.traffic.replication_bytes_in += len(records)
        known = min(high_watermark, log.log_end_offset)
        if known > self.high_watermark:
            self.high_watermark = known
            if self._watchers:
                self.wake_consumers(len(records))
        start = min(log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_records_before(start)

    def truncate_to(self, offset: int) -> None:
        """Cut off what the leader does not have. Raises StorageFault."""
        log = self.log
        if offset < log.log_end_offset:
            self._surroundings.witnessed(self, "truncation", truncated_to=offset, log_end_offset=log.log_end_offset)
            log.truncate_to(offset)
        else:
            # An epoch that began here without a record is no part of the leader's history either.
            log.epochs.truncate_from_end(log.log_end_offset)
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        self.wake_consumers(0)

    def start_anew_at(self, offset: int) -> None:
        """What is here is behind the leader's log start offset. Raises StorageFault."""
        self._surroundings.witnessed(self, "new-start", starts_at=offset, log_end_offset=self.log.log_end_offset)
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        self.wake_consumers(0)

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

    def watch(self, watcher: Watcher, isolation: Isolation) -> None:
        """Tell it when a reader of that kind can see more, or when something else changed."""
        watchers = self._end_watchers if isolation is Isolation.LOG_END else self._watchers
        watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._end_watchers.pop(watcher, None)

    def _wake_start_watchers(self) -> None:
        for watcher in tuple(self.start_watchers):
            watcher.on_progress(0)

    def wake(self, size_bytes: int) -> None:
        self.wake_consumers(size_bytes)
        self.wake_followers(size_bytes)

    def wake_consumers(self, size_bytes: int) -> None:
        for watcher in tuple(self._watchers):
            watcher.on_progress(size_bytes)

    def wake_followers(self, size_bytes: int) -> None:
        for watcher in tuple(self._end_watchers):
            watcher.on_progress(size_bytes)

    # -- log start

    @property
    def low_watermark(self) -> int:
        """Before which no replica that lives has records; -1 while one of them has not fetched in this epoch."""
        leadership = self.leadership
        start = self.log.log_start_offset
        return UNKNOWN if leadership is None else leadership.low_watermark(start, self._surroundings.is_alive)

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset (KIP-107); -1 means the HW. Returns what the low watermark is to become.

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
        return target


def _note(*all_watchers: dict[Watcher, None]) -> None:
    """Something changed that readers are to be told of when they next ask: log start offset, ISR."""
    for watchers in all_watchers:
        for watcher in tuple(watchers):
            watcher.on_note()
