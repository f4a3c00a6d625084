"""The fetcher of one leader: fetches all partitions that follow it, with one request in flight at a time.

    full fetch -> session -> incremental fetches, which name only what changed (KIP-227)

The response for a partition leads to:

    records              appended unchanged; the HW and the log start offset follow the leader's
    diverging epoch      truncation to the common end of both logs, then further fetches from there (KIP-595)
    OFFSET_OUT_OF_RANGE  the leader is asked for its first and last offsets (`replication.repositioning`)
    FENCED_LEADER_EPOCH  no more fetches until the metadata contains a newer epoch
    any other error      a pause, longer each time

Invariants
- Records are appended only if they were fetched in the replica's current epoch, from its current LEO.
- A replica is truncated by leader epochs only, never to its HW (G1).
- If a response is `_OVERDUE_MS` later than the leader may delay it, the connection is closed and opened again: after a
  network partition an old connection can stay silent for long. The limit doubles each time for a slow leader, up to
  `replica.socket.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from barnabas.common.errors import ErrorCode, RecordsRejected, StorageFault
from barnabas.common.host import Host, Timer
from barnabas.common.types import TopicPartition
from barnabas.protocol.channel import Channel
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication.divergence import common_end
from barnabas.replication.partition import Partition, Role
from barnabas.replication.quotas import ReplicationQuota
from barnabas.replication.repositioning import Repositioning

_Requested = FetchRequest.FetchPartition
_Answer = FetchResponse.PartitionData
#: (topic id, index)
_Key = tuple[bytes, int]

_PAUSE_MS: Final = 20
#: How often a partition whose log directory takes no writes is tried again.
_NO_SPACE_RETRY_MS: Final = 250
_OVERDUE_MS: Final = 2_000
#: The maximum number of record bytes appended in one event: one or two milliseconds, in which no other work is done.
_EVENT_BYTES_MAX: Final = 1 << 20
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchLimits(Protocol):
    """Sizes and times from the broker's configuration (`replica.fetch.*`)."""

    @property
    def wait_ms_max(self) -> int: ...
    @property
    def bytes_min(self) -> int: ...
    @property
    def response_bytes_max(self) -> int: ...
    @property
    def partition_bytes_max(self) -> int: ...
    @property
    def backoff_ms(self) -> int: ...
    @property
    def timeout_ms_max(self) -> int: ...


class FollowedPartition:
    """One partition that follows the leader."""

    __slots__ = ("backoff_ms", "epoch", "is_fenced", "is_in_sync", "partition", "resume_ms", "session_position")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        #: Whether the leader reported that a newer epoch has begun.
        self.is_fenced = False
        #: Whether the last response brought the log up to the leader's HW.
        self.is_in_sync = False
        #: The time before which the partition is not fetched.
        self.resume_ms = 0
        self.backoff_ms = _PAUSE_MS
        #: The position in the session: (offset, last epoch, log start offset); None outside the session.
        self.session_position: tuple[int, int, int] | None = None

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return partition.role is Role.FOLLOWER and partition.leader_epoch == self.epoch


class Fetcher:
    """Fetches everything that this broker follows from one leader."""

    def __init__(
        self,
        host: Host,
        channel: Channel,
        limits: FetchLimits,
        replica: tuple[int, Callable[[], int]],
        on_fault: Callable[[StorageFault], None],
        takes_writes: Callable[[str], bool],
        quota: ReplicationQuota,
    ) -> None:
        """`replica`: this broker's id and epoch. `takes_writes`: whether logs in a directory can be appended to, as far
        as known; others are not fetched. `quota`: the limit on replication traffic."""
        self._host = host
        self._channel = channel
        self._limits = limits
        self._node_id, self._broker_epoch = replica
        self._on_fault = on_fault
        self._quota = quota
        self._followed: dict[_Key, FollowedPartition] = {}
        #: Partitions whose position possibly differs from the session's; only these are checked for the next fetch.
        self._dirty: dict[_Key, None] = {}
        #: Partitions outside the session that wait for a pause or the quota, with the end of the wait.
        self._held: dict[_Key, int] = {}
        #: The number of partitions in the session.
        self._session_size = 0
        self._forgotten: dict[_Key, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._is_busy = False
        self._scheduled = False
        self._closed = False
        self._timer: Timer | None = None
        #: Fetches in a row that timed out after they were sent.
        self._overdue = 0
        #: Whether the fetch in flight was sent immediately, without waiting for a connection.
        self._sent_immediately = False
        self._takes_writes = takes_writes
        #: The time of the first fetch since the last answer; None if there is none.
        self.unanswered_ms: int | None = None
        self.repositioning = Repositioning(channel, node_id=self._node_id, on_fault=on_fault)

    # -- the followed partitions

    def add(self, partition: Partition) -> None:
        """Begins to follow the partition, or continues in a new epoch."""
        key = (partition.topic_id, partition.topic_partition.partition)
        self._forgotten.pop(key, None)
        known = self._followed.get(key)
        followed = self._followed[key] = FollowedPartition(partition)
        if known is not None and known.session_position is not None:
            followed.session_position = (-1, -1, -1)  # The next request names the partition again, with the new epoch.
        self._dirty[key] = None
        self._fetch_soon()

    def remove(self, topic_id: bytes, index: int) -> None:
        followed = self._followed.pop((topic_id, index), None)
        if followed is not None and followed.session_position is not None:
            self._forgotten[topic_id, index] = None
            self._leave_session(followed)

    @property
    def is_idle(self) -> bool:
        return not self._followed

    @property
    def channel(self) -> Channel:
        return self._channel

    def partitions(self) -> list[TopicPartition]:
        return [followed.partition.topic_partition for followed in self._followed.values()]

    def close(self) -> None:
        self._closed = True
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()

    # -- requests

    def _fetch_soon(self) -> None:
        """Schedules a fetch after the current event, so that one request contains all its changes."""
        if not self._scheduled and not self._is_busy and not self._closed:
            self._scheduled = True
            self._host.timers.call_soon(self._fetch)

    def _fetch(self) -> None:
        self._scheduled = False
        if self._is_busy or self._closed:
            return
        now_ms = self._host.clock.now_ms()
        topics = self._changes(now_ms)
        if not self._session_size:
            self._session_id = self._session_epoch = 0
            self._wait_for_pauses(now_ms)
            return
        limits = self._limits
        wait_ms = limits.wait_ms_max
        forgotten: dict[bytes, list[int]] = {}
        if self._session_id:
            for topic_id, index in self._forgotten:
                forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=limits.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in forgotten.items()
            ],
        )
        self._is_busy = True
        if self.unanswered_ms is None:
            self.unanswered_ms = now_ms
        self._sent_immediately = self._channel.is_ready
        self._channel.send(request, self._on_answer, timeout_ms=self._timeout_ms(wait_ms), renews_timeout=True)

    def _timeout_ms(self, wait_ms: int) -> int:
        """Returns the timeout of a fetch that the leader may delay by `wait_ms`."""
        if not self._overdue:
            return wait_ms + _OVERDUE_MS
        overdue_ms = _OVERDUE_MS << min(self._overdue, 16)
        return max(min(wait_ms + overdue_ms, self._limits.timeout_ms_max), wait_ms + _OVERDUE_MS)

    def _changes(self, now_ms: int) -> dict[bytes, list[_Requested]]:
        """Returns the partitions that the next fetch must name: all of them in a full fetch, else those whose position
        changed.
        """
        topics: dict[bytes, list[_Requested]] = {}
        is_full = self._session_id == 0
        max_bytes = self._limits.partition_bytes_max
        candidates: Iterable[_Key] = self._followed if is_full else (*self._held, *self._dirty)
        self._dirty, self._held = {}, {}
        for key in candidates:
            followed = self._followed.get(key)
            if followed is None:
                continue
            if followed.is_fenced or not followed.is_current or self._is_held(key, followed, now_ms):
                if followed.session_position is not None and not is_full:
                    self._forgotten[key] = None
                self._leave_session(followed)
                continue
            log = followed.partition.log
            position = (log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)
            if followed.session_position == position and not is_full:
                continue
            if followed.session_position is None:
                self._session_size += 1
            followed.session_position = position
            self._forgotten.pop(key, None)
            topics.setdefault(key[0], []).append(
                _Requested(
                    partition=key[1],
                    current_leader_epoch=followed.epoch,
                    fetch_offset=position[0],
                    last_fetched_epoch=position[1],
                    log_start_offset=position[2],
                    partition_max_bytes=max_bytes,
                )
            )
        return topics

    def _is_held(self, key: _Key, followed: FollowedPartition, now_ms: int) -> bool:
        """Returns whether a partition cannot be fetched now, because it is paused after an error or the quota is
        exceeded; the next fetch checks again.
        """
        if followed.resume_ms > now_ms:
            self._held[key] = followed.resume_ms
            return True
        if not self._takes_writes(followed.partition.log.directory):
            self._held[key] = now_ms + _NO_SPACE_RETRY_MS
            return True
        quota = self._quota
        if quota and not followed.is_in_sync and quota.holds_back(*followed.partition.topic_partition, now_ms):
            self._held[key] = now_ms + quota.throttle.wait_ms(now_ms)
            return True
        return False

    def _leave_session(self, followed: FollowedPartition) -> None:
        if followed.session_position is not None:
            followed.session_position = None
            self._session_size -= 1

    def _wait_for_pauses(self, now_ms: int) -> None:
        """Schedules a fetch for the end of the first pause, when no partition can be fetched now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            self._timer = self._host.timers.call_later(min(self._held.values()) - now_ms, self._fetch_soon)

    # -- responses

    def _on_answer(self, response: Message | None) -> None:
        self._is_busy = False
        if self._closed:
            return
        if not isinstance(response, FetchResponse):
            if self._sent_immediately and isinstance(self._channel.last_error, TimeoutError):
                self._overdue += 1
            self._forget_session()
            if self._channel.is_ready:
                # The connection works, but the versions of both brokers do not overlap: try again after a pause.
                self._pause_all()
        else:
            self._overdue = 0
            self.unanswered_ms = None
            code = response.error_code
            if code in _SESSION_LOST:
                self._forget_session()
            elif code != ErrorCode.NONE:
                self._forget_session()
                self._pause_all()
            else:
                self._session_id = response.session_id
                self._session_epoch = 1 if self._session_epoch == 0x7FFFFFFF else self._session_epoch + 1
                rows = [(topic.topic_id, answer) for topic in response.responses for answer in topic.partitions]
                self._take(rows, keeps_session=response.session_id != 0)
                return
        self._fetch_soon()

    def _forget_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        self._session_size = 0
        for followed in self._followed.values():
            followed.session_position = None

    def _pause_all(self) -> None:
        for followed in self._followed.values():
            self._pause(followed)

    def _take(self, rows: list[tuple[bytes, _Answer]], *, keeps_session: bool) -> None:
        """Appends the records of a fetch response in portions of `_EVENT_BYTES_MAX`, all but the first in later events;
        then fetches again.
        """
        if self._closed:
            return
        size_bytes = taken = 0
        while taken < len(rows) and (not taken or size_bytes < _EVENT_BYTES_MAX):
            topic_id, answer = rows[taken]
            self._take_row((topic_id, answer.partition_index), answer)
            size_bytes += len(answer.records or b"")
            taken += 1
        if taken < len(rows):
            rest = rows[taken:]
            for _, answer in rest:
                if isinstance(answer.records, memoryview):
                    answer.records = bytes(answer.records)  # The view is into the shared receive buffer.
            self._is_busy = True
            self._host.timers.call_soon(lambda: self._take(rest, keeps_session=keeps_session))
            return
        self._is_busy = False
        if not keeps_session:
            self._forget_session()  # The leader has no free session slot.
        self._fetch_soon()

    def _take_row(self, key: _Key, answer: _Answer) -> None:
        followed = self._followed.get(key)
        if followed is None or followed.session_position is None:
            return
        self._dirty[key] = None
        if not followed.is_current:
            return
        if followed.session_position[0] != followed.partition.log.log_end_offset:
            return  # The answer belongs to an older position.
        try:
            self._take_one(key, followed, answer)
        except StorageFault as fault:
            self._on_fault(fault)
            self._pause(followed)  # A full directory stays online, so the partition is tried again later.
        except RecordsRejected as rejected:
            self._host.faults.report(f"cannot follow {followed.partition.topic_partition}", rejected)
            self._pause(followed)

    def _take_one(self, key: _Key, followed: FollowedPartition, answer: _Answer) -> None:
        code = answer.error_code
        partition = followed.partition
        if code == ErrorCode.NONE:
            if answer.diverging_epoch is not None:
                diverging = answer.diverging_epoch
                partition.truncate_to(common_end(partition.log, diverging.epoch, diverging.end_offset))
            else:
                records = answer.records or b""
                partition.append_as_follower(records, answer.high_watermark, answer.log_start_offset)
                followed.is_in_sync = partition.log.log_end_offset >= answer.high_watermark
                if self._quota and self._quota.is_listed(*partition.topic_partition):
                    self._quota.throttle.record(len(records), self._host.clock.now_ms())
            followed.backoff_ms = _PAUSE_MS
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pause(followed)
            self.repositioning.start(partition, followed.epoch, lambda: self._resume(key, followed))
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            followed.is_fenced = True
        else:
            self._pause(followed)

    def _pause(self, followed: FollowedPartition) -> None:
        followed.resume_ms = self._host.clock.now_ms() + followed.backoff_ms
        followed.backoff_ms = min(2 * followed.backoff_ms, max(_PAUSE_MS, self._limits.backoff_ms))

    def _resume(self, key: _Key, followed: FollowedPartition) -> None:
        followed.resume_ms = 0
        self._dirty[key] = None
        self._fetch_soon()
