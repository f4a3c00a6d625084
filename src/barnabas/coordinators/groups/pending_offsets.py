"""Offsets in open transactions: they take effect when a COMMIT marker ends the transaction (KIP-98, KIP-447).

Of two offsets with one key the one later in the log counts, even if the transaction of the earlier one is committed
after it, because compaction keeps the later one, too. A write outside of transactions therefore removes the key from
all open transactions, and a committed transaction removes its keys from the transactions that wrote them before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from barnabas.coordinators.groups.group_records import CommittedOffset, OffsetKey

_NOTHING: Mapping[tuple[str, int], Set[int]] = {}


class PendingOffsets:
    """The offsets in open transactions of one shard, by producer id."""

    __slots__ = ("_by_producer", "_open", "_written")

    def __init__(self) -> None:
        #: The offsets, each with its sequence number among all writes.
        self._by_producer: dict[int, dict[OffsetKey, tuple[int, CommittedOffset]]] = {}
        self._written = 0
        #: Group and partition -> the producer ids whose open transactions contain it.
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}

    def __contains__(self, key: OffsetKey) -> bool:
        return (key.topic, key.partition) in self._open.get(key.group_id, _NOTHING)

    def has_group(self, group_id: str) -> bool:
        """Returns whether an open transaction contains offsets of the group."""
        return group_id in self._open

    def of(self, group_id: str) -> Set[tuple[str, int]]:
        """Returns the partitions of this group with offsets in open transactions."""
        return self._open.get(group_id, _NOTHING).keys()

    def put(self, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        """Stores an offset of an open transaction."""
        written = self._by_producer.setdefault(producer_id, {})
        if key not in written:
            self._open.setdefault(key.group_id, {}).setdefault((key.topic, key.partition), set()).add(producer_id)
        self._written += 1
        written[key] = (self._written, committed)

    def supersede(self, keys: Iterable[OffsetKey]) -> None:
        """Removes the keys from all open transactions, because a later record has them."""
        if not self._open:
            return
        for key in keys:
            self._drop_before(key, self._written + 1)

    def _drop_before(self, key: OffsetKey, place: int) -> None:
        writers = self._open.get(key.group_id, _NOTHING).get((key.topic, key.partition), ())
        for producer_id in tuple(writers):
            written = self._by_producer[producer_id]
            if written[key][0] < place:
                del written[key]
                self._close(key, producer_id)

    def _close(self, key: OffsetKey, producer_id: int) -> None:
        of_group = self._open[key.group_id]
        writers = of_group[key.topic, key.partition]
        writers.discard(producer_id)
        if not writers:
            del of_group[key.topic, key.partition]
            if not of_group:
                del self._open[key.group_id]

    def end(self, producer_id: int, *, commit: bool) -> Mapping[OffsetKey, CommittedOffset]:
        """Ends the producer's transaction; returns its offsets that no later record has replaced."""
        ended = self._by_producer.pop(producer_id, {})
        for key, (place, _) in ended.items():
            self._close(key, producer_id)
            if commit:
                self._drop_before(key, place)
        return {key: committed for key, (_, committed) in ended.items()}
