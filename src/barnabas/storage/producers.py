"""The state of the idempotent and transactional producers of one log (KIP-98), as of an offset.

It contains for each producer its epoch, its last five batches (a repeated batch is answered with its first offset,
guard G20), and where its open transaction begins. An append consists of

    check(header)      before anything is written: None, or the batch that this one repeats; RecordsRejected otherwise
    update(header)     after it is written, with its offsets
    apply_marker(...)  for the control batch that ends a transaction

A follower, or a log in recovery, calls only the last two. The first unstable offset is the smallest first offset of the
transactions that are open, or ended above the high watermark; read_committed consumers read only below it.

Files contain snapshots of this state (`producer_snapshots.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Disk
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, EndTxnMarker
from barnabas.records.header import (
    CONTROL_FLAG,
    NO_PRODUCER_EPOCH,
    TRANSACTIONAL_FLAG,
    advance_sequence,
)
from barnabas.storage.checkpoints import CheckpointError
from barnabas.storage.producer_entries import AppendedBatch, ProducerEntry
from barnabas.storage.producer_snapshots import ProducerSnapshotFiles

DEFAULT_EXPIRATION_MS = 86_400_000

_MAX_SEQUENCE = 0x7FFFFFFF


class CompletedTxn(NamedTuple):
    """A transaction whose marker is in the log. `last_stable_offset` is the LSO once the marker is replicated."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class ProducerStateManager:
    """The producers of one log.

    The state contains everything before `map_end_offset`. Open transactions are kept in the order of their first
    offsets, the order in which they begin.
    """

    __slots__ = (
        "_ended",
        "_open",
        "_producers",
        "_snapshot_offset",
        "expiration_ms",
        "map_end_offset",
        "snapshots",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        *,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        names: Iterable[str] | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.expiration_ms = expiration_ms
        self.snapshots = ProducerSnapshotFiles(disk, directory, names)
        self.map_end_offset = 0
        self._snapshot_offset = 0
        self._producers: dict[int, ProducerEntry] = {}
        #: First offset of each open transaction -> its producer.
        self._open: dict[int, int] = {}
        #: First offset of each transaction that has ended above the high watermark -> offset of its marker.
        self._ended: dict[int, int] = {}

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        return self._producers

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._ended

    # Appending

    def check(self, header: BatchHeader, *, from_client: bool = True) -> AppendedBatch | None:
        """Checks whether the producer can append this data batch now. Returns the batch that it repeats, or None for a
        new one."""
        entry = self._producers.get(header.producer_id)
        if (
            entry is not None
            and header.producer_epoch == entry.epoch
            and header.base_sequence == entry.last_sequence + 1
            and (entry.txn_first_offset is None or header.attributes & TRANSACTIONAL_FLAG)
        ):
            return None
        return self._check_unusual(header, entry, from_client)

    def _check_unusual(
        self, header: BatchHeader, entry: ProducerEntry | None, from_client: bool
    ) -> AppendedBatch | None:
        if entry is None:
            return None  # unknown, or its records were deleted: any sequence can be the first
        if from_client:
            repeated = entry.find_repeated(header)
            if repeated is not None:
                return repeated
        if header.producer_epoch < entry.epoch:
            raise self._stale_epoch(header, entry)
        if from_client:
            self._check_sequence(header, entry)
        if entry.txn_first_offset is not None and not header.is_transactional:
            raise RecordsRejected(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} in {self.topic_partition}: "
                f"its transaction is open since offset {entry.txn_first_offset}",
            )
        return None

    def _stale_epoch(self, header: BatchHeader, entry: ProducerEntry) -> RecordsRejected:
        return RecordsRejected(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {header.producer_id} in {self.topic_partition} is {header.producer_epoch}, "
            f"which is smaller than the last seen epoch {entry.epoch}",
        )

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry) -> None:
        sequence = header.base_sequence
        if entry.epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != entry.epoch:
            if sequence != 0:
                raise RecordsRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch {header.producer_epoch} of producer {header.producer_id} "
                    f"in {self.topic_partition}: {sequence} (incoming seq. number), {entry.epoch} (current epoch)",
                )
            return
        last = entry.last_sequence
        if sequence != last + 1 and not (sequence == 0 and last == _MAX_SEQUENCE):
            raise RecordsRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} in {self.topic_partition}: "
                f"{sequence} (incoming seq. number), {last} (current end sequence number)",
            )

    def update(self, header: BatchHeader) -> None:
        """Applies a data batch that is in the log, with its final offsets."""
        base_offset, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        assert producer_id >= 0, "a batch without a producer"
        assert not attributes & CONTROL_FLAG, "a control batch goes to apply_marker"
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id, epoch)
        elif epoch != entry.epoch:
            entry.move_to_epoch(epoch)
        entry.add(AppendedBatch(advance_sequence(sequence, delta), base_offset + delta, delta, timestamp))
        if attributes & TRANSACTIONAL_FLAG and entry.txn_first_offset is None:
            entry.txn_first_offset = base_offset
            self._open[base_offset] = producer_id

    # Transactions

    def check_marker(self, header: BatchHeader, marker: EndTxnMarker) -> None:
        """Checks that neither the coordinator epoch nor the producer epoch of a marker is stale. Raises
        RecordsRejected."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise self._stale_epoch(header, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise RecordsRejected(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {header.producer_id} in {self.topic_partition}: "
                f"{marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def apply_marker(self, header: BatchHeader, marker: EndTxnMarker, timestamp: int) -> CompletedTxn | None:
        """Applies a marker in the log at `header.base_offset`. Returns the transaction that it ended, or None if none
        was open.

        The caller adds an aborted one to the transaction index before any reader can pass its last stable offset.
        """
        producer_id = header.producer_id
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        first_offset = entry.txn_first_offset
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.markers += 1
        entry.txn_first_offset = None
        if first_offset is None:
            return None
        self._open.pop(first_offset)
        self._ended[first_offset] = header.base_offset
        stable = next(iter(self._open), header.base_offset + 1)
        return CompletedTxn(producer_id, first_offset, header.base_offset, not marker.commit, stable)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or did not end below the high watermark."""
        if not self._open and not self._ended:
            return None
        return min([*self._ended, *([next(iter(self._open))] if self._open else [])])

    def on_high_watermark(self, high_watermark: int) -> None:
        """Removes the transactions that ended below the high watermark: no reader depends on them any more."""
        if self._ended:
            self._ended = {first: last for first, last in self._ended.items() if last >= high_watermark}

    def expire(self, wall_ms: int) -> int:
        """Removes producers without an open transaction that were idle for `expiration_ms`. Returns their number."""
        expired = [key for key, entry in self._producers.items() if entry.is_expired(wall_ms, self.expiration_ms)]
        for key in expired:
            del self._producers[key]
        return len(expired)

    # Snapshots and truncation

    def reload(self, log_start_offset: int, log_end_offset: int, wall_ms: int) -> bool:
        """Loads the newest valid snapshot within the log. The caller replays the log from `map_end_offset` on. Deletes
        damaged snapshots and those outside the log. Returns whether the snapshot contains producers.

        Snapshots do not contain the transactions that ended above the high watermark. Those that are known are kept as
        long as the log has their markers (Apache Kafka drops them).
        """
        for offset in self.snapshots:
            if offset > log_end_offset or offset <= log_start_offset:
                self.snapshots.delete(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start(log_start_offset)
            return False
        ended = {first: marker for first, marker in self._ended.items() if marker < log_end_offset}
        self._clear()
        self._ended = ended
        self.map_end_offset = self._snapshot_offset = log_start_offset
        while (latest := self.snapshots.latest) is not None:
            try:
                entries = self.snapshots.read(latest)
            except CheckpointError:
                self.snapshots.delete(latest)
                continue
            self._take_over(entries, wall_ms)
            self.map_end_offset = self._snapshot_offset = latest
            return bool(entries)
        return False

    def _take_over(self, entries: Iterable[ProducerEntry], wall_ms: int) -> None:
        self._producers = {
            entry.producer_id: entry for entry in entries if not entry.is_expired(wall_ms, self.expiration_ms)
        }
        opened = [
            (e.txn_first_offset, e.producer_id) for e in self._producers.values() if e.txn_first_offset is not None
        ]
        self._open = dict(sorted(opened))

    def as_of(self, offset: int, log_start_offset: int) -> ProducerStateManager:
        """Returns the state of the newest valid snapshot at or below `offset`, or an empty state at the log start.
        Changes nothing on disk."""
        past = ProducerStateManager(self.snapshots.disk, self.snapshots.directory, self.topic_partition, names=())
        past.map_end_offset = log_start_offset
        for snapshot in reversed(tuple(self.snapshots)):
            if not log_start_offset < snapshot <= offset:
                continue
            try:
                past._take_over(self.snapshots.read(snapshot), wall_ms=0)
            except CheckpointError:
                continue
            past.map_end_offset = snapshot
            break
        return past

    def restore_ended(self, past: ProducerStateManager, high_watermark: int) -> None:
        """Adds the transactions that ended at or above the high watermark. `past` is a state replayed up to
        `map_end_offset`."""
        assert past.map_end_offset == self.map_end_offset, "both states cover the same part of the log"
        self._ended.update(past._ended)
        self.on_high_watermark(high_watermark)

    def take_over(self, other: ProducerStateManager) -> None:
        """Copies the state of another copy of the log, including producers whose records it no longer has (G20)."""
        assert other.map_end_offset == self.map_end_offset, "the copies end at the same offset"
        self._producers = dict(other._producers)
        self._open = dict(other._open)
        self._ended = dict(other._ended)

    def _clear(self) -> None:
        self._producers = {}
        self._open = {}
        self._ended = {}

    def take_snapshot(self, *, sync: bool = True) -> int | None:
        """Writes the state before `map_end_offset`, unless the newest snapshot has it. Returns the offset if it wrote
        one."""
        if self.map_end_offset <= self._snapshot_offset:
            return None
        self.snapshots.write(self.map_end_offset, self._producers.values(), sync=sync)
        self._snapshot_offset = self.map_end_offset
        return self.map_end_offset

    def on_log_start(self, log_start_offset: int) -> None:
        """Applies a higher log start offset: transactions that ended before it are removed. The producers of deleted
        records are remembered.
        """
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._snapshot_offset = log_start_offset if latest is None else latest

    def reset(self, offset: int) -> None:
        """Resets the state for a log that is empty and begins at `offset`."""
        self._clear()
        for snapshot in self.snapshots:
            self.snapshots.delete(snapshot)
        self.map_end_offset = offset
        self._snapshot_offset = 0

    def delete_snapshots_before(self, offset: int) -> None:
        for snapshot in self.snapshots:
            if snapshot < offset:
                self.snapshots.delete(snapshot)

    def delete_snapshots_above(self, offset: int) -> None:
        for snapshot in self.snapshots:
            if snapshot > offset:
                self.snapshots.delete(snapshot)

    def remove_stray_snapshots(self, segment_offsets: Collection[int]) -> None:
        """Deletes the snapshots that are not at the beginning of a segment, except one above all segments, which a
        clean shutdown leaves."""
        bases = sorted(segment_offsets)
        stray = [offset for offset in self.snapshots if not _contains(bases, offset)]
        keep_last = bool(stray) and (not bases or stray[-1] >= bases[-1])
        for offset in stray[:-1] if keep_last else stray:
            self.snapshots.delete(offset)


def _contains(ordered: list[int], value: int) -> bool:
    place = bisect_right(ordered, value)
    return place > 0 and ordered[place - 1] == value
