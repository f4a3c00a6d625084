"""The offsets that groups have committed: OffsetCommit, OffsetFetch, OffsetDelete, and their expiry.

An offset is read only once it is committed to the log, so a change of leader never takes one back. Commits on their way
are counted by key: expiry leaves such keys alone, or its tombstone would land behind the new commit and remove it.

Expiry (KIP-211): of an empty group `offsets.retention.minutes` after it became empty; of a stable consumer group, what
it no longer subscribes to, that long after the commit; of a group without members ever (simple consumers), that long
after the commit. A group without members and offsets goes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.context import GroupContext
from barnabas.coordinators.groups.group import NO_TIMESTAMP, ClassicGroup, GroupState
from barnabas.coordinators.groups.pending_offsets import PendingOffsets
from barnabas.coordinators.groups.rebalance import Rebalancer
from barnabas.coordinators.groups.records import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetKey,
    group_tombstone,
    offset_tombstone,
    parse_key,
    parse_offset,
)
from barnabas.coordinators.runtime import KeyValue, storing_failed
from barnabas.records.draft import BatchDraft

#: (topic, partition) of one group.
Partition = tuple[str, int]
_NOTHING: Mapping[Partition, CommittedOffset] = {}


class Offsets:
    """The committed offsets of one shard."""

    __slots__ = ("_committed", "_context", "_on_their_way", "_rebalancer", "pending")

    def __init__(self, context: GroupContext, rebalancer: Rebalancer) -> None:
        self._context = context
        self._rebalancer = rebalancer
        self._committed: dict[str, dict[Partition, CommittedOffset]] = {}
        self._on_their_way: dict[str, dict[Partition, int]] = {}
        #: What open transactions have written.
        self.pending = PendingOffsets()

    # -- reading

    def of(self, group_id: str) -> Mapping[Partition, CommittedOffset]:
        return self._committed.get(group_id, _NOTHING)

    @property
    def count(self) -> int:
        """Of all groups."""
        return sum(map(len, self._committed.values()))

    def groups(self) -> Iterable[str]:
        return self._committed.keys()

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change it (KIP-447)."""
        return (topic, partition) in self.pending.of(group_id)

    def unstable_of(self, group_id: str) -> Set[Partition]:
        """Those that open transactions may yet change."""
        return self.pending.of(group_id)

    # -- committing

    def commit(
        self,
        group_id: str,
        accepted: Sequence[tuple[str, int, CommittedOffset]],
        batch: bytearray,
        answered: Callable[[ErrorCode], None],
    ) -> None:
        """`batch` has the records of what is accepted."""
        on_their_way = self._on_their_way.setdefault(group_id, {})
        for topic, partition, _ in accepted:
            on_their_way[topic, partition] = on_their_way.get((topic, partition), 0) + 1

        def settled(code: ErrorCode) -> None:
            self._arrived(group_id, accepted)
            if code is ErrorCode.NONE:
                self.pending.supersede(OffsetKey(group_id, topic, partition) for topic, partition, _ in accepted)
                self._put(group_id, accepted)

        self._context.log.append_batch(batch, lambda code: answered(storing_failed(code)), settled)

    def _arrived(self, group_id: str, accepted: Sequence[tuple[str, int, CommittedOffset]]) -> None:
        on_their_way = self._on_their_way[group_id]
        for topic, partition, _ in accepted:
            left = on_their_way[topic, partition] - 1
            if left:
                on_their_way[topic, partition] = left
            else:
                del on_their_way[topic, partition]
        if not on_their_way:
            del self._on_their_way[group_id]

    def _put(self, group_id: str, accepted: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        offsets = self._committed.setdefault(group_id, {})
        for topic, partition, committed in accepted:
            offsets[topic, partition] = committed
        if group_id not in self._context.groups and self._context.consumer_group(group_id) is None:
            self._context.create(group_id)

    # -- transactions

    def commit_in_transaction(
        self,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        accepted: Sequence[tuple[str, int, CommittedOffset]],
        draft: BatchDraft,
        answered: Callable[[ErrorCode], None],
    ) -> None:
        """They are written now, and count when the transaction is committed."""
        batch = draft.encode(
            self._context.wall_ms(),
            codec=self._context.config.offsets_topic_codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            transactional=True,
        )

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                for topic, partition, committed in accepted:
                    self.pending.put(producer_id, OffsetKey(group_id, topic, partition), committed)

        self._context.log.append_batch(batch, lambda code: answered(storing_failed(code)), settled)

    def end_transaction(
        self, producer_id: int, commit: bool, marker: bytearray, answered: Callable[[ErrorCode], None]
    ) -> None:
        """Write the marker; what the transaction wrote counts, or is dropped, when that is committed."""

        def settled(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                return
            for key, committed in self.pending.end(producer_id, commit=commit).items():
                if commit:
                    self._put(key.group_id, [(key.topic, key.partition, committed)])

        self._context.log.append_batch(marker, answered, settled)

    # -- deleting

    def delete(self, group_id: str, partitions: Iterable[Partition], answered: Callable[[ErrorCode], None]) -> None:
        """Those of `partitions` that have an offset."""
        self._remove(group_id, self._known(group_id, partitions), answered)

    def delete_groups(self, group_ids: Sequence[str], answered: Callable[[ErrorCode], None]) -> None:
        """Groups with all that they committed; in one batch, so all or none."""
        removed = [(group_id, self._all(group_id)) for group_id in group_ids]
        records: list[KeyValue] = []
        for group_id, partitions in removed:
            records += [offset_tombstone(group_id, *partition) for partition in partitions]
            records.append(group_tombstone(group_id))

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                for group_id, partitions in removed:
                    self._drop(group_id, partitions)
                    self._drop_group(group_id)

        self._context.log.append(records, lambda code: answered(storing_failed(code)), settled)

    def delete_partitions(self, gone: frozenset[Partition]) -> None:
        """Topics were deleted: nobody can go on from there."""
        for group_id in tuple(self._committed):
            partitions = [partition for partition in self.of(group_id) if partition in gone]
            self._remove(group_id, partitions, lambda _: None)

    def _known(self, group_id: str, partitions: Iterable[Partition]) -> list[Partition]:
        offsets, on_their_way = self.of(group_id), self._on_their_way.get(group_id, {})
        return [partition for partition in partitions if partition in offsets or partition in on_their_way]

    def _all(self, group_id: str) -> list[Partition]:
        pending = self.pending.of(group_id)
        return list(dict.fromkeys((*self.of(group_id), *self._on_their_way.get(group_id, {}), *pending)))

    def _remove(self, group_id: str, partitions: Sequence[Partition], answered: Callable[[ErrorCode], None]) -> None:
        if not partitions:
            answered(ErrorCode.NONE)
            return

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._drop(group_id, partitions)

        records = [offset_tombstone(group_id, *partition) for partition in partitions]
        self._context.log.append(records, lambda code: answered(storing_failed(code)), settled)

    def _drop(self, group_id: str, partitions: Iterable[Partition]) -> None:
        partitions = tuple(partitions)
        self.pending.supersede(OffsetKey(group_id, *partition) for partition in partitions)
        offsets = self._committed.get(group_id)
        if offsets is None:
            return
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            del self._committed[group_id]

    def tombstones_of(self, group_id: str) -> tuple[list[KeyValue], Callable[[], None]]:
        """What ends all that the group has committed, and what is to be called when that is in the log."""
        partitions = self._all(group_id)
        records = [offset_tombstone(group_id, *partition) for partition in partitions]
        return records, lambda: self._drop(group_id, partitions)

    def _drop_group(self, group_id: str) -> None:
        """Unless somebody has come to it while its deletion was on its way."""
        group = self._context.groups.get(group_id)
        if group is not None and is_deserted(group) and group_id not in self._committed:
            self._rebalancer.bury(group, ErrorCode.GROUP_ID_NOT_FOUND)
            del self._context.groups[group_id]

    # -- expiry

    def expire(self, group: ClassicGroup) -> None:
        """Write tombstones for what this group need not remember any longer."""
        group_id = group.group_id
        expired = self._expired(group)
        is_last = len(expired) == len(self.of(group_id)) and group_id not in self._on_their_way
        if is_last and is_deserted(group) and not self.pending.has_group(group_id):
            self.delete_groups([group_id], lambda _: None)
        elif expired:
            self._remove(group_id, expired, lambda _: None)

    def expire_of_consumers(self, group: ConsumerGroup) -> bool:
        """As `expire`, of a group of the consumer protocol. Returns whether nothing keeps the group itself any more."""
        group_id = group.group_id
        on_their_way = self._on_their_way.get(group_id, {})
        now_ms = self._context.wall_ms()
        expired = [
            partition
            for partition, committed in self.of(group_id).items()
            if self._is_over(committed, NO_TIMESTAMP, now_ms)
            and not group.is_subscribed_to(partition[0])
            and partition not in on_their_way
            and not self.is_unstable(group_id, *partition)
        ]
        is_last = len(expired) == len(self.of(group_id)) and not on_their_way
        if is_last and not group.members and not self.pending.has_group(group_id):
            return True
        self._remove(group_id, expired, lambda _: None)
        return False

    def _expired(self, group: ClassicGroup) -> list[Partition]:
        offsets = self.of(group.group_id)
        if not offsets:
            return []
        if group.protocol_type is None:
            since_ms = NO_TIMESTAMP
        elif group.is_in(GroupState.EMPTY):
            since_ms = group.state_timestamp_ms
        elif group.is_in(GroupState.STABLE) and group.is_consumers and group.subscribed is not None:
            since_ms = NO_TIMESTAMP
        else:
            return []
        on_their_way = self._on_their_way.get(group.group_id, {})
        now_ms = self._context.wall_ms()
        return [
            partition
            for partition, committed in offsets.items()
            if self._is_over(committed, since_ms, now_ms)
            and not group.is_subscribed_to(partition[0])
            and partition not in on_their_way
            and not self.is_unstable(group.group_id, *partition)
        ]

    def _is_over(self, committed: CommittedOffset, since_ms: int, now_ms: int) -> bool:
        """`since_ms` is when the group became empty, if that is what counts."""
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        base_ms = committed.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms
        return now_ms - base_ms >= self._context.config.offsets_retention_ms

    # -- replaying

    def replay_offset(self, key: OffsetKey, committed: CommittedOffset) -> None:
        self._committed.setdefault(key.group_id, {})[key.topic, key.partition] = committed

    def replay_open(self, producer_id: int, key: bytes, value: bytes) -> None:
        """Of a transaction that had no end in the log yet. DecodeError."""
        parsed = parse_key(key)
        if isinstance(parsed, OffsetKey):
            self.pending.put(producer_id, parsed, parse_offset(value))


def is_deserted(group: ClassicGroup) -> bool:
    """Nobody is in it, and nobody was told to come back."""
    return group.is_in(GroupState.EMPTY) and not group.pending_joins
