"""Detection of markers during the verification of a transaction (KIP-890, part 1): the log's part.

Before the first record of a transaction is appended, the leader asks the coordinator whether the partition is part of
it. A marker that arrives during this request ends the transaction: a record that waited for the response no longer
belongs to it, and would open a transaction that nothing ends.

    guard = MarkerGuard(producers, producer_id)  before the request
    guard.holds                            after a positive response, immediately before the append
"""

from __future__ import annotations

from barnabas.storage.producers import ProducerStateManager


def has_ongoing(producers: ProducerStateManager, producer_id: int, epoch: int) -> bool:
    """Returns whether this producer has records of an open transaction in the log, in this epoch."""
    entry = producers.producers.get(producer_id)
    return entry is not None and entry.txn_first_offset is not None and entry.epoch == epoch


def is_late_marker(producers: ProducerStateManager, producer_id: int, epoch: int) -> bool:
    """Returns whether a marker of transactions v2 is late. The end of such a transaction raises the epoch, so its
    marker has a higher epoch than its records; a marker without one would end the next transaction (guard G24).
    """
    entry = producers.producers.get(producer_id)
    return entry is not None and entry.txn_first_offset is not None and epoch <= entry.epoch


class MarkerGuard:
    """Detects whether a marker of a producer was written since the guard was created."""

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
