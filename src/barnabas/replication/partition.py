"""A replica of one partition on this broker: its role, LEO, HW and ISR, and the operations that wait for it.

Invariants
- Only `become_leader`, `become_follower` and `go_offline` change the role. The HW changes on a leader by
  `_advance_high_watermark`, and on a follower by `append_as_follower`, `truncate_to` and `start_anew_at`; before the
  first role, `replication.damage` lowers it to the end of a log that lost records.
- HW = lowest LEO of the maximal ISR (`replication.leadership`), and it advances only while the ISR has at least
  min(min.insync.replicas, replication factor) members (KIP-966, section 6.5.2). It never goes back while leading.
- Consumers never see anything above the HW, whatever acks it was written with.
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
from barnabas.records.batch import iter_headers
from barnabas.records.deferred import DeferredValidation
from barnabas.replication.commit_waiters import CommitWaiter, CommitWaiters
from barnabas.replication.isr_reasons import encode_reason
from barnabas.replication.leadership import UNKNOWN, Leadership
from barnabas.replication.purgatory import StartWatcher, Watcher
from barnabas.replication.traffic import TopicTraffic
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log import AppendInfo, Log, Origin
from barnabas.storage.log_reads import LogRead


class Environment(Protocol):
    """The services that the replicas of one broker share."""

    @property
    def lag_ms_max(self) -> int:
        """The value of `replica.lag.time.max.ms`."""

    @property
    def followed_ms(self) -> int:
        """The time within which followers fetch, even if there is nothing new: twice `replica.fetch.wait.max.ms`."""

    def now_ms(self) -> int: ...

    def may_join(self, broker_id: int, broker_epoch: int, directory: bytes) -> bool:
        """Returns whether this incarnation of a broker can be in an ISR with a replica in that directory: unfenced, not
        shutting down, and able to write."""

    def is_alive(self, broker_id: int) -> bool:
        """Returns whether the broker is registered and unfenced."""

    def expect_followers(self, partition: Partition) -> None:
        """Prepares for fetches of the partition's followers, when this broker leads it in a new epoch."""

    @property
    def pushes_high_watermark(self) -> bool:
        """Whether followers learn of a new HW immediately, because they serve consumers (KIP-392)."""

    def propose(self, partition: Partition) -> None:
        """Sends the proposal of the partition's leadership to the controller."""

    def wake_followers_soon(self, partition: Partition, size_bytes: int) -> None:
        """Calls `wake_followers` after the current event, once for all of its appends."""

    def report_event(self, partition: Partition, what: str, **facts: int) -> None:
        """Records an event that only this replica knows of, for the journal."""


class Role(Enum):
    """The role of this replica towards clients and other brokers."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class Isolation(Enum):
    """The isolation level of a reader, which limits the records that it can see."""

    LOG_END = "log end"  # records below the LEO, for followers
    READ_UNCOMMITTED = "read_uncommitted"  # records below the HW
    READ_COMMITTED = "read_committed"  # records below the LSO


class Partition:
    """A replica, and its leadership while it leads. All offsets are record offsets; sizes are in bytes."""

    __slots__ = (
        "_commit_waiters",
        "_end_watchers",
        "_environment",
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
        environment: Environment,
        *,
        high_watermark: int = 0,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.traffic = traffic or TopicTraffic()
        self.topic_id = topic_id
        self.node_id = node_id
        self._environment = environment
        self.role = Role.NONE
        self.image: PartitionImage | None = None
        self.leader_epoch = -1
        #: The leadership in the current epoch, while this replica leads.
        self.leadership: Leadership | None = None
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._watchers: dict[Watcher, None] = {}
        #: Watchers of followers, which wait for the LEO and not for the HW.
        self._end_watchers: dict[Watcher, None] = {}
        self._commit_waiters = CommitWaiters()
        #: Watchers of the low watermark, called when it possibly moved and when leadership is lost.
        self.start_watchers: dict[StartWatcher, None] = {}
        self.log = log
        log.signals.watch_start(lambda: _note(self._watchers, self._end_watchers))

    # -- roles

    def become_leader(self, image: PartitionImage) -> None:
        """Becomes the leader in `image.leader_epoch`. If the epoch is the current one, only the ISR changes."""
        assert image.leader == self.node_id, f"{image.leader} leads, not this broker"
        assert image.leader_epoch >= self.leader_epoch, "a leader epoch never decreases"
        self.image = image
        leadership, now_ms = self.leadership, self._environment.now_ms()
        if leadership is None or image.leader_epoch != self.leader_epoch:
            if image.leader_recovery_state == RECOVERING:
                self._environment.report_event(self, "unclean-leader", log_end_offset=self.log.log_end_offset)
            self.role = Role.LEADER
            self.leader_epoch = image.leader_epoch
            self.log.assign_epoch(image.leader_epoch, self.log.log_end_offset)
            self.leadership = Leadership(self.node_id, image, self.log.log_end_offset, now_ms)
            if not self.leadership.is_alone:
                self._environment.expect_followers(self)
            self.wake_consumers(0)
        else:
            leadership.on_image(image, now_ms)
        _note(self._watchers, self._end_watchers)
        self._advance_high_watermark()
        assert self.high_watermark <= self.log.log_end_offset, "the HW covers only records of this log"

    def become_follower(self, image: PartitionImage) -> None:
        """Becomes a follower of `image.leader`, or of no broker if that is -1."""
        assert image.leader != self.node_id, "a leader follows no broker"
        assert image.leader_epoch >= self.leader_epoch, "a leader epoch never decreases"
        self.image = image
        self.role = Role.FOLLOWER
        self.leader_epoch = image.leader_epoch
        self._leave_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def go_offline(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Ends all waiting operations with `code`: the log directory failed, or the partition is deleted."""
        self.role = Role.OFFLINE
        self._leave_leadership(code)

    def _leave_leadership(self, code: ErrorCode) -> None:
        self.leadership = None
        for done in self._commit_waiters.take():
            done(code)
        self.wake(0)
        self._wake_start_watchers()

    # -- appends

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The committed ISR."""
        if self.leadership is not None:
            return self.leadership.isr
        return () if self.image is None else self.image.isr

    @property
    def enough_in_sync(self) -> bool:
        """Whether the ISR is large enough for acks=all: min.insync.replicas, at most the replication factor."""
        leadership = self.leadership
        assert leadership is not None, "only a leader takes writes"
        return len(leadership.isr) >= min(self.log.config.min_insync_replicas, leadership.replication_factor)

    @property
    def is_end_known(self) -> bool:
        """Whether the HW has reached that of every earlier leader (KIP-207)."""
        return self.leadership is not None and self.high_watermark >= self.leadership.epoch_start_offset

    @property
    def is_replicated(self) -> bool:
        """Whether the HW depends on other replicas."""
        return self.leadership is None or not self.leadership.is_alone

    def append(
        self, batches: Buffer, wall_ms: int, origin: Origin, validated: DeferredValidation | None = None
    ) -> AppendInfo:
        """Appends as leader. Raises RecordsRejected, ValidationDeferred or StorageFault. The HW advances immediately if
        this replica is alone in the ISR."""
        info = self.log.append_as_leader(
            batches, self.leader_epoch, wall_ms=wall_ms, origin=origin, validated=validated
        )
        if not info.duplicate:
            self._advance_high_watermark(len(batches))
            if self._end_watchers:
                self._environment.wake_followers_soon(self, len(batches))
        return info

    def await_commit(self, offset: int, done: Callable[[ErrorCode], None]) -> CommitWaiter | None:
        """Calls `done` once the HW reaches `offset` (immediately if it has: then returns None) or leadership is lost;
        with NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR is too small by then."""
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
        target = end_offset = self.log.log_end_offset
        if not leadership.is_alone:
            if not self.enough_in_sync:
                return
            environment = self._environment
            target = leadership.high_watermark(
                target, environment.now_ms(), environment.lag_ms_max, environment.may_join
            )
        if target <= self.high_watermark:
            return
        assert target <= end_offset, "the HW covers only records of this log"
        self.high_watermark = target
        if self._end_watchers:
            if self._environment.pushes_high_watermark:
                self.wake_followers(0)
            else:
                _note(self._end_watchers)
        if self._commit_waiters:
            verdict = self._verdict()
            for done in self._commit_waiters.take(target):
                done(verdict)
        if self._watchers:
            self.wake_consumers(appended_bytes)

    # -- the leader's view of its followers

    def on_follower_fetch(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> bool:
        """Records that a follower has everything before `offset`. Returns False if it is not a follower of this
        partition.
        """
        leadership, environment = self.leadership, self._environment
        if leadership is None:
            return False
        now_ms = environment.now_ms()
        end_offset = self.log.log_end_offset
        if not leadership.on_fetch(replica_id, offset, log_start_offset, broker_epoch, end_offset, now_ms):
            return False
        if self.start_watchers:
            self._wake_start_watchers()
        if replica_id not in leadership.isr:
            enlarged = leadership.enlarged(replica_id, self.high_watermark, environment.may_join)
            if enlarged is not None:
                leadership.propose(enlarged)
                leadership.reason = encode_reason(leadership, end_offset, now_ms)
                environment.propose(self)
        self._advance_high_watermark()
        return True

    def shrink_isr(self) -> None:
        """Proposes an ISR without lagging members, if there are any. The HW waits no longer for a replica outside the
        ISR that lags by now, or whose broker is fenced: fetches of the members do not advance it while their positions
        stay the same.
        """
        leadership, environment = self.leadership, self._environment
        if leadership is None or leadership.is_alone:
            return
        end_offset, now_ms = self.log.log_end_offset, environment.now_ms()
        reduced = leadership.reduced(end_offset, now_ms, environment.lag_ms_max)
        if reduced is not None:
            leadership.propose(reduced)
            leadership.reason = encode_reason(leadership, end_offset, now_ms)
            environment.propose(self)
        elif self.high_watermark < end_offset:
            self._advance_high_watermark()

    def on_isr_committed(self) -> None:
        """Applies the ISR that the controller accepted."""
        _note(self._watchers, self._end_watchers)
        self._advance_high_watermark()

    @property
    def is_followed(self) -> bool:
        """Whether all members of the ISR fetch: then no other replica can have been elected, except within the last
        `followed_ms`, a second by default.
        """
        environment = self._environment
        return self.leadership is not None and self.leadership.is_followed(
            environment.now_ms(), environment.followed_ms
        )

    # -- the role of a follower

    def append_as_follower(self, records: Buffer, high_watermark: int, log_start_offset: int) -> None:
        """Appends the leader's records unchanged, and adopts its HW, as far as the records go, and its log start
        offset. Raises RecordsRejected or StorageFault."""
        assert self.leadership is None, "a leader takes no records of another one"
        log = self.log
        if len(records):
            if log.log_start_offset == log.log_end_offset and (base := _first_below(log, records)) is not None:
                log.truncate_fully_and_start_at(base)
                self.high_watermark = base
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
        """Removes the records that the leader does not have. Raises StorageFault."""
        assert self.leadership is None, "a leader truncates nothing"
        log = self.log
        if offset < log.log_end_offset:
            self._environment.report_event(self, "truncation", truncated_to=offset, log_end_offset=log.log_end_offset)
            log.truncate_to(offset)
        else:
            # An epoch that began at the LEO, without records, is not in the leader's log either.
            log.epochs.truncate_from_end(log.log_end_offset)
        assert log.log_end_offset <= offset, "records that the leader does not have are gone"
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        self.wake_consumers(0)

    def start_anew_at(self, offset: int) -> None:
        """Deletes all records, which are below the leader's log start offset. Raises StorageFault."""
        assert self.leadership is None, "a leader deletes none of its records"
        self._environment.report_event(self, "new-start", starts_at=offset, log_end_offset=self.log.log_end_offset)
        self.log.truncate_fully_and_start_at(offset)
        assert self.log.log_start_offset == self.log.log_end_offset == offset, "the log is empty"
        self.high_watermark = offset
        self.wake_consumers(0)

    # -- reads

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compares the client's leader epoch with the current one (KIP-320); -1 skips the check."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def readable_end(self, isolation: Isolation) -> int:
        """Returns the offset below which this reader sees records."""
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
        """Returns batches from the one that contains `offset`; None if there are no records yet. A `ColdRead` has to be
        loaded in a thread and then passed to `log.take`.

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

    # -- waiting operations

    def watch(self, watcher: Watcher, isolation: Isolation) -> None:
        """Calls the watcher when a reader with that isolation level can see more, or when something else has
        changed.
        """
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

    # -- log start offset

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas; -1 while one of them has not fetched in this epoch."""
        leadership = self.leadership
        start = self.log.log_start_offset
        return UNKNOWN if leadership is None else leadership.low_watermark(start, self._environment.is_alive)

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start offset (KIP-107); -1 means the HW. Returns the low watermark to wait for.

        Raises RequestFailed: OFFSET_OUT_OF_RANGE above the HW, POLICY_VIOLATION if cleanup.policy lacks delete.
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


def _first_below(log: Log, records: Buffer) -> int | None:
    """Returns the base offset of the first batch if an empty log begins inside of it: a client deleted a part of it."""
    first = next((header for _, header in iter_headers(records)), None)
    is_inside = first is not None and first.base_offset < log.log_end_offset < first.next_offset
    return first.base_offset if first is not None and is_inside else None


def _note(*all_watchers: dict[Watcher, None]) -> None:
    """Notifies watchers of a change that belongs in the next response: log start offset, ISR."""
    for watchers in all_watchers:
        for watcher in tuple(watchers):
            watcher.on_note()
