"""Removal of committed offsets: OffsetDelete, DeleteGroups, deleted topics, and expiry.

Tombstones are written in slices that each fit into a batch: the next slice is built from the state after the previous
one is committed, in a separate turn of the loop. A group's own tombstone is in the last slice. A failed write ends the
removal: the slices before it are removed, the rest is unchanged, and the next attempt continues there.

Offsets of a classic group expire (KIP-211) `offsets.retention.minutes` after the group became empty. They expire that
long after their commit if the group never had members (simple consumers), or is stable and no longer subscribes to
their topic. Those of a consumer group (KIP-848) expire that long after their commit if the group does not subscribe to
their topic. A group without members and offsets is removed, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic.group import NO_TIMESTAMP, ClassicGroup, GroupState
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.group_records import NO_EXPIRY, CommittedOffset, group_tombstone, offset_tombstone
from barnabas.coordinators.groups.offsets import Offsets, Partition, is_removable
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.coordinators.runtime import KeyValue, client_error
from barnabas.coordinators.steps import ROWS, parts

#: The largest size of a record without the group's id: the longest topic name, a partition and the record's framing.
_RECORD_BYTES: Final = 249 + 60
#: The space reserved in each batch for its header and the records of the group itself.
_RESERVE_BYTES: Final = 1_000


class _Slice:
    """The tombstones of one batch. `is_last` marks the last slice of a removal."""

    __slots__ = ("_bytes_left", "groups", "is_last", "offsets", "records")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = bytes_max
        self.records: list[KeyValue] = []
        self.offsets: dict[str, dict[Partition, None]] = {}
        self.groups: list[str] = []
        self.is_last = False

    def room_for(self, group_id: str) -> int:
        """Returns how many more records of this group fit into the slice."""
        rows = min(ROWS - len(self.records), self._bytes_left // _record_bytes(group_id))
        return max(rows, 0 if self.records else 1)

    def add(self, group_id: str, partitions: Sequence[Partition]) -> None:
        self.offsets.setdefault(group_id, {}).update(dict.fromkeys(partitions))
        self.records += [offset_tombstone(group_id, *partition) for partition in partitions]
        self._bytes_left -= len(partitions) * _record_bytes(group_id)

    def add_group(self, group_id: str) -> None:
        self.groups.append(group_id)
        self.records.append(group_tombstone(group_id))
        self._bytes_left -= _record_bytes(group_id)


class OffsetRemoval:
    """The removal of the offsets and classic groups of one shard."""

    __slots__ = ("_context", "_offsets")

    def __init__(self, context: GroupContext, offsets: Offsets) -> None:
        self._context = context
        self._offsets = offsets

    # -- slices

    @property
    def _bytes_max(self) -> int:
        return self._context.log.plain_bytes_max - _RESERVE_BYTES

    def _rows(self, group_id: str) -> int:
        """Returns the number of this group's offsets that fit into a slice."""
        return max(1, min(ROWS, self._bytes_max // _record_bytes(group_id) - 1))

    def _slice(self) -> _Slice:
        return _Slice(self._bytes_max)

    def _write(
        self,
        slices: Iterator[_Slice],
        answered: Callable[[ErrorCode], None],
        removed: Callable[[str], None] | None = None,
    ) -> None:
        """Writes the slices, each after the previous one is committed. Calls `answered(code)` once, and
        `removed(group id)` for each removed group. `slices` can raise RequestFailed."""
        log = self._context.log
        if log.is_closed:
            answered(ErrorCode.NOT_COORDINATOR)
            return
        try:
            chosen = next(slices, None)
        except RequestFailed as failure:
            answered(failure.code)
            return
        if chosen is None:
            answered(ErrorCode.NONE)
            return

        def settled(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                return
            for group_id, partitions in chosen.offsets.items():
                self._offsets.drop(group_id, tuple(partitions))
            for group_id in chosen.groups:
                self._offsets.drop_group(group_id)
                if removed is not None:
                    removed(group_id)

        def proceed(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE or chosen.is_last:
                answered(client_error(code))
            else:
                self._context.host.timers.call_soon(lambda: self._write(slices, answered, removed))

        if chosen.records:
            log.append(chosen.records, proceed, settled)
        else:
            proceed(ErrorCode.NONE)

    # -- OffsetDelete

    def delete(self, group_id: str, partitions: Iterable[Partition], answered: Callable[[ErrorCode], None]) -> None:
        """Deletes the offsets of `partitions`. If that takes several slices, topics that the group has subscribed to
        in the meantime are kept."""
        self._write(self._deleting(group_id, tuple(partitions)), answered)

    def _deleting(self, group_id: str, partitions: Sequence[Partition]) -> Iterator[_Slice]:
        done = 0
        for part in parts(partitions, self._rows(group_id)):
            wanted: Iterable[Partition] = part
            if done:
                subscribed = self._subscribed_of(group_id, {topic for topic, _ in part})
                wanted = [partition for partition in part if partition[0] not in subscribed]
            done += len(part)
            chosen = self._slice()
            chosen.add(group_id, self._offsets.known(group_id, wanted))
            chosen.is_last = done == len(partitions)
            yield chosen

    def _subscribed_of(self, group_id: str, topics: Iterable[str]) -> set[str]:
        group = self._context.groups.get(group_id) or self._context.consumer_group(group_id)
        return set() if group is None else {topic for topic in topics if group.is_subscribed_to(topic)}

    # -- DeleteGroups

    def delete_groups(self, group_ids: Sequence[str], answered: Callable[[Mapping[str, ErrorCode]], None]) -> None:
        """Deletes empty classic groups with all their offsets; calls `answered` with the error code of each."""
        codes: dict[str, ErrorCode] = {}

        def removed(group_id: str) -> None:
            codes[group_id] = ErrorCode.NONE

        def finish(code: ErrorCode) -> None:
            answered({group_id: codes.get(group_id, code) for group_id in group_ids})

        self._write(self._deleting_groups(group_ids, codes), finish, removed)

    def _deleting_groups(self, group_ids: Sequence[str], codes: dict[str, ErrorCode]) -> Iterator[_Slice]:
        chosen = self._slice()
        for group_id in group_ids:
            while (code := self._may_be_deleted(group_id)) is ErrorCode.NONE:
                left = self._offsets.some_of(group_id, ROWS, chosen.offsets.get(group_id, {}))
                room = chosen.room_for(group_id)
                chosen.add(group_id, left[:room])
                if len(left) < room:
                    chosen.add_group(group_id)
                    break
                yield chosen
                chosen = self._slice()
            if code is not ErrorCode.NONE:
                codes[group_id] = code
        chosen.is_last = True
        yield chosen

    def _may_be_deleted(self, group_id: str) -> ErrorCode:
        group = self._context.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_in(GroupState.EMPTY) else ErrorCode.NON_EMPTY_GROUP

    def delete_most(self, group_id: str, answered: Callable[[ErrorCode], None]) -> None:
        """Deletes offsets of a consumer group without members until those that are left fit into one batch. Fails with
        NON_EMPTY_GROUP if the group has members.
        """
        self._write(self._deleting_most(group_id), answered)

    def _deleting_most(self, group_id: str) -> Iterator[_Slice]:
        rows = self._rows(group_id)
        while len(left := self._offsets.some_of(group_id, rows + 1)) > rows:
            group = self._context.consumer_group(group_id)
            if group is None:
                raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND)
            if group.members:
                raise RequestFailed(ErrorCode.NON_EMPTY_GROUP)
            chosen = self._slice()
            chosen.add(group_id, left[:rows])
            yield chosen

    def tombstones_of(self, group_id: str) -> tuple[list[KeyValue], Callable[[], None]]:
        """Returns the tombstones of all offsets of the group, and the function to call when they are committed."""
        partitions = self._offsets.some_of(group_id, sys.maxsize)
        records = [offset_tombstone(group_id, *partition) for partition in partitions]
        return records, lambda: self._offsets.drop(group_id, partitions)

    # -- deleted topics

    def delete_partitions(self, deleted: frozenset[Partition]) -> None:
        """Deletes the offsets of deleted topics, which are useless from now on. Later commits belong to new topics of
        the same names and are kept."""
        self._write(self._deleting_partitions(deleted, self._context.wall_ms()), lambda _: None)

    def _deleting_partitions(self, deleted: frozenset[Partition], until_ms: int) -> Iterator[_Slice]:
        chosen = self._slice()
        checked = 0
        for group_id in tuple(self._offsets.groups()):
            places = (
                tuple(self._offsets.of(group_id)) if len(self._offsets.of(group_id)) < len(deleted) else tuple(deleted)
            )
            for partition in places:
                checked += 1
                if not checked % ROWS or not chosen.room_for(group_id):
                    yield chosen
                    chosen = self._slice()
                committed = self._offsets.of(group_id).get(partition)
                if committed is not None and partition in deleted and committed.commit_timestamp_ms <= until_ms:
                    chosen.add(group_id, (partition,))
        chosen.is_last = True
        yield chosen

    # -- expiry

    def expire(self, group: ClassicGroup) -> None:
        """Deletes the expired offsets of a classic group, and the group itself if nothing is left."""
        self._write(self._expiring(group), lambda _: None)

    def _expiring(self, group: ClassicGroup) -> Iterator[_Slice]:
        group_id = group.group_id
        places = tuple(self._offsets.of(group_id))
        done = 0
        for part in parts(places, self._rows(group_id)):
            if self._context.groups.get(group_id) is not group:
                return
            expired = self._expired(group, part)
            done += len(part)
            chosen = self._slice()
            chosen.add(group_id, expired)
            if self._leaves_no_offsets(group_id, expired) and is_removable(group):
                chosen.add_group(group_id)
            chosen.is_last = done == len(places)
            yield chosen

    def expire_consumer_group(self, group: ConsumerGroup, delete: Callable[[str], None]) -> None:
        """Deletes the expired offsets of a consumer group. Calls `delete(group id)` instead if all remaining offsets
        have expired and the group has no members."""
        self._write(self._expiring_consumer_group(group.group_id, delete), lambda _: None)

    def _expiring_consumer_group(self, group_id: str, delete: Callable[[str], None]) -> Iterator[_Slice]:
        places = tuple(self._offsets.of(group_id))
        done = 0
        for part in parts(places, self._rows(group_id)):
            group = self._context.consumer_group(group_id)
            if group is None:
                return
            names = group.names()
            past = self._past_retention(group_id, part, NO_TIMESTAMP)
            expired = [partition for partition in past if partition[0] not in names]
            if self._leaves_no_offsets(group_id, expired) and not group.members:
                delete(group_id)
                return
            done += len(part)
            chosen = self._slice()
            chosen.add(group_id, expired)
            chosen.is_last = done == len(places)
            yield chosen

    def _leaves_no_offsets(self, group_id: str, expired: Sequence[Partition]) -> bool:
        """Returns whether the group has no offsets besides `expired`, and no commits in flight or in open
        transactions."""
        offsets = self._offsets
        if len(expired) != len(offsets.of(group_id)) or offsets.has_commits_in_flight(group_id):
            return False
        return not offsets.pending.has_group(group_id)

    def _expired(self, group: ClassicGroup, partitions: Sequence[Partition]) -> list[Partition]:
        if not partitions:
            return []
        if group.protocol_type is None:
            since_ms = NO_TIMESTAMP
        elif group.is_in(GroupState.EMPTY):
            since_ms = group.state_timestamp_ms
        elif group.is_in(GroupState.STABLE) and group.is_consumers and group.subscribed is not None:
            since_ms = NO_TIMESTAMP
        else:
            return []
        past = self._past_retention(group.group_id, partitions, since_ms)
        return [partition for partition in past if not group.is_subscribed_to(partition[0])]

    def _past_retention(self, group_id: str, partitions: Iterable[Partition], since_ms: int) -> list[Partition]:
        """Returns the partitions whose retention time is over and that have no commit in flight. `since_ms` is the
        time that the group became empty, if the retention counts from there."""
        offsets, in_flight = self._offsets.of(group_id), self._offsets.in_flight_of(group_id)
        unstable = self._offsets.unstable_of(group_id)
        now_ms = self._context.wall_ms()
        return [
            partition
            for partition in partitions
            if (committed := offsets.get(partition)) is not None
            and self._is_past_retention(committed, since_ms, now_ms)
            and partition not in in_flight
            and partition not in unstable
        ]

    def _is_past_retention(self, committed: CommittedOffset, since_ms: int, now_ms: int) -> bool:
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        base_ms = committed.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms
        return now_ms - base_ms >= self._context.config.offsets_retention_ms


def _record_bytes(group_id: str) -> int:
    """Returns the largest size of a tombstone of this group."""
    return _RECORD_BYTES + len(group_id.encode())
