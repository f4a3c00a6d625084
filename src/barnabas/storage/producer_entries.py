"""The state of one producer in one log: its epoch, its last batches, and its open transaction (KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.records.batch import BatchHeader
from barnabas.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

#: The batches of each producer that are recognised when repeated; clients have at most this many in flight.
BATCHES_KEPT = 5
NO_COORDINATOR_EPOCH = -1

_MAX_SEQUENCE = 0x7FFFFFFF


class AppendedBatch(NamedTuple):
    """A batch of a producer in the log, remembered so that a repeated batch is detected."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE


class ProducerEntry:
    """The state of one producer. `last_sequence` is that of the newest batch in `epoch`, -1 before the first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_sequence",
        "last_timestamp",
        "markers",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        *,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        txn_first_offset: int | None = None,
        batch: AppendedBatch | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        #: The number of markers since the entry was created, by which a caller can detect a new one.
        self.markers = 0
        self.batches: list[AppendedBatch] = [] if batch is None else [batch]
        self.last_sequence = NO_SEQUENCE if batch is None else batch.last_sequence

    def move_to_epoch(self, epoch: int) -> None:
        """Changes the epoch. Sequences restart with every epoch, so earlier batches cannot be repeated in it (guard
        G21)."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE

    def add(self, batch: AppendedBatch) -> None:
        if len(self.batches) == BATCHES_KEPT:
            del self.batches[0]
        self.batches.append(batch)
        self.last_sequence = batch.last_sequence
        self.last_timestamp = batch.timestamp

    def find_repeated(self, header: BatchHeader) -> AppendedBatch | None:
        """Returns the batch in the log that this one repeats, or None."""
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def is_expired(self, wall_ms: int, expiration_ms: int) -> bool:
        return self.txn_first_offset is None and wall_ms - self.last_timestamp >= expiration_ms
