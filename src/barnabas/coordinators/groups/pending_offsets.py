"""Offsets that open transactions have written: they count when the marker says so (KIP-98, KIP-447).

Of two offsets of one key the one that stands later in the log counts, also when the transaction of the earlier one is
committed after it: compaction keeps that one, too. So whatever is written without a transaction takes the key out of
all open ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from barnabas.coordinators.groups.records import CommittedOffset, OffsetKey

_NOTHING: Mapping[OffsetKey, CommittedOffset] = {}


class PendingOffsets:
    """By producer, of one shard."""

    __slots__ = ("_by_producer", "_open")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        #: In how many open transactions each key is.
        self._open: Counter[OffsetKey] = Counter()

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._open

    def has_group(self, group_id: str) -> bool:
        """Whether a transaction may yet give it an offset."""
        return any(key.group_id == group_id for key in self._open)

    def put(self, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        written = self._by_producer.setdefault(producer_id, {})
        if key not in written:
            self._open[key] += 1
        written[key] = committed

    def supersede(self, keys: Iterable[OffsetKey]) -> None:
        """Something later was written for them."""
        if not self._open:
            return
        for key in keys:
            if key in self._open:
                del self._open[key]
                for written in self._by_producer.values():
                    written.pop(key, None)

    def end(self, producer_id: int) -> Mapping[OffsetKey, CommittedOffset]:
        """Its transaction is over; what it wrote, as far as nothing came after it."""
        written = self._by_producer.pop(producer_id, None)
        if written is None:
            return _NOTHING
        for key in written:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
        return written
