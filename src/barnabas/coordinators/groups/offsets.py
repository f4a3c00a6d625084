"""The committed offsets of groups; `offset_removal.py` deletes them.

An offset is visible only after its record is committed, so that a change of leader never revokes one. Commits in flight
are counted by key: expiry skips these keys, since its tombstone would follow the new commit in the log and remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from itertools import chain

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.group_records import (
    CommittedOffset,
    OffsetKey,
    parse_key,
    parse_offset,
)
from barnabas.coordinators.groups.pending_offsets import PendingOffsets
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.coordinators.runtime import client_error
from barnabas.records.draft import BatchDraft

#: A (topic, partition) of one group.
Partition = tuple[str, int]
_NOTHING: Mapping[Partition, CommittedOffset] = {}


class Offsets:
    """The committed offsets of one shard."""

    __slots__ = ("_committed", "_context", "_in_flight", "_rebalancer", "pending")

    def __init__(self, context: GroupContext, rebalancer: Rebalancer) -> None:
        self._context = context
        self._rebalancer = rebalancer
        self._committed: dict[str, dict[Partition, CommittedOffset]] = {}
        self._in_flight: dict[str, dict[Partition, int]] = {}
        #: The offsets in open transactions.
        self.pending = PendingOffsets()

    # -- reading

    def of(self, group_id: str) -> Mapping[Partition, CommittedOffset]:
        """Returns the committed offsets of the group by partition."""
        return self._committed.get(group_id, _NOTHING)

    @property
    def count(self) -> int:
        """Returns the number of committed offsets of all groups."""
        return sum(map(len, self._committed.values()))

    def groups(self) -> Iterable[str]:
        return self._committed.keys()

    def unstable_of(self, group_id: str) -> Set[Partition]:
        """Returns the partitions of the group that open transactions can still change."""
        return self.pending.of(group_id)

    # -- committing

    def commit(
        self,
        group_id: str,
        accepted: Sequence[tuple[str, int, CommittedOffset]],
        batch: bytearray,
        answered: Callable[[ErrorCode], None],
    ) -> None:
        """Writes `batch`, which contains the records of `accepted`, and applies them when it is committed."""
        in_flight = self._in_flight.setdefault(group_id, {})
        for topic, partition, _ in accepted:
            in_flight[topic, partition] = in_flight.get((topic, partition), 0) + 1

        def settled(code: ErrorCode) -> None:
            self._on_settled(group_id, accepted)
            if code is ErrorCode.NONE:
                self.pending.supersede(OffsetKey(group_id, topic, partition) for topic, partition, _ in accepted)
                self._put(group_id, accepted)

        self._context.log.append_batch(batch, lambda code: answered(client_error(code)), settled)

    def _on_settled(self, group_id: str, accepted: Sequence[tuple[str, int, CommittedOffset]]) -> None:
        in_flight = self._in_flight[group_id]
        for topic, partition, _ in accepted:
            left = in_flight[topic, partition] - 1
            if left:
                in_flight[topic, partition] = left
            else:
                del in_flight[topic, partition]
        if not in_flight:
            del self._in_flight[group_id]

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
        """Writes offsets as part of a transaction; they take effect when the transaction is committed."""
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

        self._context.log.append_batch(batch, lambda code: answered(client_error(code)), settled)

    def end_transaction(
        self, producer_id: int, commit: bool, marker: bytearray, answered: Callable[[ErrorCode], None]
    ) -> None:
        """Writes a transaction marker; when it is committed, the offsets of the transaction take effect or are
        dropped."""

        def settled(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                return
            for key, committed in self.pending.end(producer_id, commit=commit).items():
                if commit:
                    self._put(key.group_id, [(key.topic, key.partition, committed)])

        self._context.log.append_batch(marker, answered, settled)

    # -- removing

    def has_commits_in_flight(self, group_id: str) -> bool:
        """Returns whether a commit of this group is in flight."""
        return group_id in self._in_flight

    def in_flight_of(self, group_id: str) -> Mapping[Partition, int]:
        """Returns the partitions of this group with commits in flight, and their number."""
        return self._in_flight.get(group_id, {})

    def known(self, group_id: str, partitions: Iterable[Partition]) -> list[Partition]:
        """Returns those of `partitions` that have an offset or a commit in flight."""
        offsets, in_flight = self.of(group_id), self.in_flight_of(group_id)
        return [partition for partition in partitions if partition in offsets or partition in in_flight]

    def some_of(self, group_id: str, count_max: int, without: Container[Partition] = ()) -> list[Partition]:
        """Returns up to `count_max` partitions that have an offset, a commit in flight, or an offset in an open
        transaction."""
        found: dict[Partition, None] = {}
        for partition in chain(self.of(group_id), self.in_flight_of(group_id), self.pending.of(group_id)):
            if len(found) == count_max:
                break
            if partition not in without:
                found[partition] = None
        return list(found)

    def drop(self, group_id: str, partitions: Sequence[Partition]) -> None:
        """Removes offsets whose tombstones are committed."""
        self.pending.supersede(OffsetKey(group_id, *partition) for partition in partitions)
        offsets = self._committed.get(group_id)
        if offsets is None:
            return
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            del self._committed[group_id]

    def drop_group(self, group_id: str) -> None:
        """Removes a group whose tombstone is committed, unless it has gained members or offsets in the meantime."""
        group = self._context.groups.get(group_id)
        if group is not None and is_removable(group) and group_id not in self._committed:
            self._rebalancer.end_group(group, ErrorCode.GROUP_ID_NOT_FOUND)
            del self._context.groups[group_id]

    # -- replaying

    def replay_offset(self, key: OffsetKey, committed: CommittedOffset) -> None:
        self._committed.setdefault(key.group_id, {})[key.topic, key.partition] = committed

    def replay_open(self, producer_id: int, key: bytes, value: bytes) -> None:
        """Stores a record of a transaction that is open at the end of the log. Raises DecodeError if it cannot be
        read.
        """
        parsed = parse_key(key)
        if isinstance(parsed, OffsetKey):
            self.pending.put(producer_id, parsed, parse_offset(value))


def is_removable(group: ClassicGroup) -> bool:
    """Returns whether the group has no members, and no client that has a member id and has yet to join with it."""
    return group.is_in(GroupState.EMPTY) and not group.pending_joins
