"""The state of a compaction pass: the newest offset of each key, and the transactions.

`OffsetMap` holds as many keys as fit into its memory, by an estimate of what they take; the others are left for the
next pass. It stores the keys themselves (long ones as a digest), so that two keys are never confused.

`CleanedTransactions` follows producers from the first batch on: data of an aborted transaction is removed immediately,
a marker can be removed once none of its transaction's batches is left in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from heapq import heapify, heappop

from barnabas.records.batch import ControlType
from barnabas.records.header import BatchHeader
from barnabas.storage.transaction_index import AbortedTxn

#: The memory of an entry: its share of the dictionary, an int and the header of a bytes object.
ENTRY_BYTES = 128
#: Longer keys are stored as a digest, which is one byte longer than this and so never equals a short key.
_KEY_BYTES_MAX = 64
PARTS = 256


def map_key(key: bytes) -> bytes:
    """Returns the form in which the offset map stores a record's key."""
    return key if len(key) <= _KEY_BYTES_MAX else b"#" + blake2b(key).digest()


class OffsetMap:
    """The newest offset of each key among the records up to `latest_offset`.

    It is divided into many parts, because a dictionary that grows or is freed blocks all threads until this is done.
    The part of a key is `parts[hash(key) % PARTS]`.
    """

    __slots__ = ("_memory_bytes", "latest_offset", "parts", "size_bytes")

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        #: The estimated memory, rather too high than too low.
        self.size_bytes = 0
        self.latest_offset = -1
        self.parts: tuple[dict[bytes, int], ...] = tuple({} for _ in range(PARTS))

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._memory_bytes

    def add(self, keys: Sequence[bytes], offsets: Iterable[int]) -> None:
        """Adds the records of one batch, in their order."""
        parts = self.parts
        new_bytes = 0
        for key, offset in zip(keys, offsets, strict=True):
            part = parts[hash(key) % PARTS]
            if key not in part:
                new_bytes += ENTRY_BYTES + len(key)
            part[key] = offset
        self.size_bytes += new_bytes

    def get(self, key: bytes) -> int:
        """Returns the newest offset of the key, or -1 if the key is not in the map."""
        return self.parts[hash(key) % PARTS].get(key, -1)

    def reach(self, offset: int) -> None:
        """Records that the map contains the keys of all records up to this offset."""
        self.latest_offset = max(self.latest_offset, offset)

    def release(self) -> Iterator[int]:
        """Frees the memory of the offset map, part by part."""
        for part in self.parts:
            part.clear()
            yield 0


class _Ongoing:
    """An aborted transaction that is open at the current position. `is_seen`: one of its batches is still in the
    log."""

    __slots__ = ("aborted", "is_seen")

    def __init__(self, aborted: AbortedTxn) -> None:
        self.aborted = aborted
        self.is_seen = False


class CleanedTransactions:
    """Decides which batches belong to aborted transactions, and which markers are still needed."""

    __slots__ = ("_aborting", "_committing", "_waiting", "retained")

    def __init__(self, aborted: Iterable[AbortedTxn] = ()) -> None:
        #: Aborted transactions that begin after the current position, by first offset.
        self._waiting: list[tuple[int, AbortedTxn]] = [(txn.first_offset, txn) for txn in aborted]
        heapify(self._waiting)
        self._aborting: dict[int, _Ongoing] = {}
        self._committing: set[int] = set()
        #: Aborted transactions whose marker stays, since the list was last cleared: the new transaction index.
        self.retained: list[AbortedTxn] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Returns whether the batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._aborting.get(header.producer_id)
        if ongoing is None:
            self._committing.add(header.producer_id)
            return False
        ongoing.is_seen = True
        return True

    def on_marker(self, header: BatchHeader, kind: int | None) -> bool:
        """Returns whether no batch of the marker's transaction is left before it. `kind` is None for a batch that an
        earlier pass emptied."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if kind is None:
            return True
        if kind == ControlType.ABORT:
            ongoing = self._aborting.pop(producer_id, None)
            if ongoing is None or not ongoing.is_seen:
                return True
            self.retained.append(ongoing.aborted)
            return False
        if kind == ControlType.COMMIT:
            if producer_id in self._committing:
                self._committing.remove(producer_id)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, txn = heappop(waiting)
            self._aborting.setdefault(txn.producer_id, _Ongoing(txn))
