"""What keeps a record out of a transaction that is over: the log's part in verifying transactions (KIP-890, part 1).

Before the first record of a transaction goes into a log, its leader asks the coordinator whether the partition is part
of it. A marker that comes while the question is under way ends the transaction: what waited then does not belong to it
any more, and would open one that nobody ends.

    guard = Guard(producers, producer_id)  before the question
    guard.holds                            after a good answer, right before the append
"""

from __future__ import annotations

from barnabas.storage.producers import ProducerStateManager


def has_ongoing(producers: ProducerStateManager, producer_id: int, epoch: int) -> bool:
    """Whether this producer has records of an open transaction in the log, in this epoch."""
    entry = producers.producers.get(producer_id)
    return entry is not None and entry.txn_first_offset is not None and entry.epoch == epoch


def is_late_marker(producers: ProducerStateManager, producer_id: int, epoch: int) -> bool:
    """Of a transaction whose end bumps the epoch: its marker is beyond its records. One that is not, while records are
    open, comes late, and would end the next transaction (guard G24)."""
    entry = producers.producers.get(producer_id)
    return entry is not None and entry.txn_first_offset is not None and epoch <= entry.epoch


class Guard:
    """That no marker of a producer has come since this was made."""

    __slots__ = ("_entry", "_markers", "_producer_id", "_producers")

    def __init__(self, producers: ProducerStateManager, producer_id: int) -> None:
        self._producers = producers
        self._producer_id = producer_id
        self._entry = producers.producers.get(producer_id)
        self._markers = 0 if self._entry is None else self._entry.markers

    @property
    def holds(self) -> bool:
        entry = self._producers.producers.get(self._producer_id)
        if self._entry is not None and entry is not self._entry:
            return False
        return entry is None or entry.markers == self._markers
