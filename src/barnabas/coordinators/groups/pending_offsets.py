"""Offsets that open transactions have written: they count when the marker says so (KIP-98, KIP-447).

Of two offsets of one key the one that stands later in the log counts, also when the transaction of the earlier one is
committed after it: compaction keeps that one, too. So whatever is written without a transaction takes the key out of
all open ones, and a transaction that is committed out of those that wrote it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from barnabas.coordinators.groups.records import CommittedOffset, OffsetKey


class PendingOffsets:
    """By producer, of one shard."""

    __slots__ = ("_by_producer", "_open", "_written")

    def __init__(self) -> None:
        #: With the place of each among all that was written.
        self._by_producer: dict[int, dict[OffsetKey, tuple[int, CommittedOffset]]] = {}
        self._written = 0
        #: In how many open transactions each key is.
        self._open: Counter[OffsetKey] = Counter()

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._open

    def has_group(self, group_id: str) -> bool:
        """Whether a transaction may yet give it an offset."""
        return any(key.group_id == group_id for key in self._open)

    def of(self, group_id: str) -> list[OffsetKey]:
        return [key for key in self._open if key.group_id == group_id]

    def put(self, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        written = self._by_producer.setdefault(producer_id, {})
        if key not in written:
            self._open[key] += 1
        self._written += 1
        written[key] = (self._written, committed)

    def supersede(self, keys: Iterable[OffsetKey]) -> None:
        """Something later was written for them."""
        if not self._open:
            return
        for key in keys:
            if key in self._open:
                self._drop_before(key, self._written + 1)

    def _drop_before(self, key: OffsetKey, place: int) -> None:
        for written in self._by_producer.values():
            if key in written and written[key][0] < place:
                del written[key]
                self._close(key)

    def _close(self, key: OffsetKey) -> None:
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]

    def end(self, producer_id: int, *, commit: bool) -> Mapping[OffsetKey, CommittedOffset]:
        """Its transaction is over; what it wrote, as far as nothing came after it."""
        ended = self._by_producer.pop(producer_id, {})
        for key, (place, _) in ended.items():
            self._close(key)
            if commit:
                self._drop_before(key, place)
        return {key: committed for key, (_, committed) in ended.items()}
