"""The changes that are not yet known to be in the journal, on each node that can become the active controller.

    add -> [ written in part | drawn ... | waiting ... ] -> drawn in order as records -> `written`, or `rewind`

Invariants
- A change leaves when all its events are written, or when the window is full: then `floor` is the metadata offset up
  to which this node no longer has the changes.
- The events of a small change are computed when `draw` takes them for writing. A large change is packed: its events
  are computed from when it is added, some at a time (`pack`), and replace it. The window has a limit in bytes, which
  count after packing. Changes that wait to be packed are never dropped: beyond a limit, the oldest are packed
  immediately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from barnabas.common.host import Timers
from barnabas.journal.events import MetadataChange
from barnabas.records.batch import Record

#: The largest number of bytes in the window, by the sizes of packed events and estimates of the small changes.
_BYTES_MAX: Final = 32 << 20
#: The memory that a partition of a small change takes until the change is packed.
_BYTES_PER_PARTITION: Final = 400
_BYTES_PER_RECORD: Final = 200
#: A change of a greater weight is packed. Weights are in changed partitions.
_SMALL_MAX: Final = 200
#: The largest number of changes that are not packed, and the largest sum of their weights.
_UNPACKED_MAX: Final = 4_096
_UNPACKED_WEIGHT_MAX: Final = 300_000

#: The records that are packed in one turn, which takes some milliseconds.
_RECORDS_PER_TURN: Final = 10

#: Returns the records of a change's events.
RecordsOf = Callable[[MetadataChange], Iterator[Record]]


class _Entry:
    """A change, or the part of its records that exists. `change` is None when it is packed."""

    __slots__ = ("change", "is_explained", "offset", "records", "size", "source", "weight")

    def __init__(self, change: MetadataChange) -> None:
        self.change: MetadataChange | None = change
        self.offset = change.offset
        self.weight = change.weight
        #: A large change counts when it is packed; until then its weight is limited.
        self.size = 0 if self.is_large else self.weight * _BYTES_PER_PARTITION
        self.records: list[Record] = []
        self.source: Iterator[Record] | None = None
        #: Whether the change needs an explanation; kept after the change itself is dropped.
        self.is_explained = False

    @property
    def is_large(self) -> bool:
        return self.weight > _SMALL_MAX

    def fill(self, records_of: RecordsOf, count: int) -> bool:
        """Computes records until there are `count`. Returns whether there are that many."""
        if self.change is not None and len(self.records) < count:
            if self.source is None:
                self.source = records_of(self.change)
            self.records += islice(self.source, count - len(self.records))
        return len(self.records) >= count


class ChangeWindow:
    """The bounded queue of changes. It has two positions: up to the first, the records of the changes were handed to
    the writer, and up to the second, they were written. `needs_explaining` says whether a change needs the journal.
    """

    def __init__(self, records_of: RecordsOf, needs_explaining: Callable[[MetadataChange], bool]) -> None:
        self._records_of = records_of
        self._needs_explaining = needs_explaining
        self._entries: deque[_Entry] = deque()
        self._size = 0
        #: The entries that are not packed, the oldest first, and those of them that `pack` packs next.
        self._unpacked: deque[_Entry] = deque()
        self._unpacked_weight = 0
        self._large: deque[_Entry] = deque()
        #: This node has no changes up to this metadata offset: they were made before it started, or were dropped.
        self.floor = -1
        #: `_drawn` is the number of changes whose records were all taken for writing, and `_partly` the number of
        #: records taken of the next change; `_written` records of the first change are already written.
        self._drawn = 0
        self._partly = 0
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def offsets(self) -> list[int]:
        """Returns the metadata offsets of the changes."""
        return [entry.offset for entry in self._entries]

    @property
    def needs_packing(self) -> bool:
        return bool(self._large)

    @property
    def needs_explaining(self) -> bool:
        """Whether any of the changes needs an explanation."""
        return any(
            entry.is_explained if entry.change is None else self._needs_explaining(entry.change)
            for entry in self._entries
        )

    def add(self, change: MetadataChange) -> None:
        entry = _Entry(change)
        self._entries.append(entry)
        self._unpacked.append(entry)
        self._unpacked_weight += entry.weight
        self._size += entry.size
        if entry.is_large:
            self._large.append(entry)
        while len(self._unpacked) > 1 and (
            len(self._unpacked) > _UNPACKED_MAX or self._unpacked_weight > _UNPACKED_WEIGHT_MAX
        ):
            self._pack_whole(self._unpacked[0])
        while self._size > _BYTES_MAX and len(self._entries) > 1:
            self._make_room()

    def pack(self, count: int) -> None:
        """Computes up to `count` records of the oldest large change."""
        entry = self._large[0]
        if not entry.fill(self._records_of, len(entry.records) + count):
            self._packed(entry)

    def begin_after(self, offset: int) -> None:
        """Empties the window; the next change begins at `offset`, which does not follow the changes that were in it."""
        self.rewind()
        for waiting in (self._entries, self._unpacked, self._large):
            waiting.clear()
        self._size = self._unpacked_weight = self._written = 0
        self.floor = offset

    def forget_before(self, offset: int) -> None:
        """Removes the changes before `offset`, all of whose events are written."""
        self.rewind()
        self._written = 0
        while self._entries and self._entries[0].offset < offset:
            self._drop_first()

    def draw(self, count_max: int, bytes_max: int) -> list[Record]:
        """Takes the next records for writing: at most `count_max`, and no further one after `bytes_max` bytes."""
        found: list[Record] = []
        size = 0
        while self._drawn < len(self._entries):
            entry = self._entries[self._drawn]
            if self._drawn == 0:
                self._partly = max(self._partly, self._written)
            if not entry.fill(self._records_of, self._partly + 1):
                self._drawn += 1
                self._partly = 0
                continue
            if len(found) == count_max or size >= bytes_max:
                break
            found.append(entry.records[self._partly])
            size += len(found[-1].value or b"")
            self._partly += 1
        return found

    def waiting(self, count_max: int) -> list[Record]:
        """Returns the first records that are not known to be written. They stay in the window."""
        found: list[Record] = []
        begin = self._written
        for entry in self._entries:
            wanted = begin + count_max - len(found)
            entry.fill(self._records_of, wanted)
            found += entry.records[begin:wanted]
            begin = 0
            if len(found) == count_max:
                break
        return found

    def written(self) -> None:
        """Removes everything that was taken so far, because it is written."""
        for _ in range(self._drawn):
            self._drop_first()
        self._drawn = 0
        self._written = self._partly

    def rewind(self) -> None:
        """Makes the next `draw` begin again with the records that were taken but not written."""
        self._drawn = self._partly = 0

    def _pack_whole(self, entry: _Entry) -> None:
        while entry.fill(self._records_of, len(entry.records) + _SMALL_MAX):
            pass
        self._packed(entry)

    def _packed(self, entry: _Entry) -> None:
        """Replaces a change by the records of its events, after all of them were built."""
        assert entry.change is not None, "packed once"
        entry.is_explained = self._needs_explaining(entry.change)
        self._leave(entry)
        entry.change = entry.source = None
        self._size -= entry.size
        entry.size = sum(_BYTES_PER_RECORD + len(record.value or b"") for record in entry.records)
        self._size += entry.size

    def _leave(self, entry: _Entry) -> None:
        self._unpacked.remove(entry)
        self._unpacked_weight -= entry.weight
        if entry.is_large:
            self._large.remove(entry)

    def _make_room(self) -> None:
        """Drops the oldest change."""
        self.floor = self._entries[0].offset
        if self._drawn:
            self._drawn -= 1
        else:
            self._partly = 0
        self._written = 0
        self._drop_first()

    def _drop_first(self) -> None:
        entry = self._entries.popleft()
        self._size -= entry.size
        if entry.change is not None:
            self._leave(entry)


class PackingTurns:
    """The turns of the loop in which a window's large changes are packed."""

    def __init__(self, timers: Timers, window: ChangeWindow) -> None:
        self._timers = timers
        self._window = window
        self._is_scheduled = False
        self._is_closed = False

    def begin(self) -> None:
        """Begins, in the next turn of the loop, to pack the changes that wait for it."""
        if self._window.needs_packing and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_soon(self._run)

    def close(self) -> None:
        self._is_closed = True

    def _run(self) -> None:
        self._is_scheduled = False
        if self._window.needs_packing and not self._is_closed:
            self._window.pack(_RECORDS_PER_TURN)
            self.begin()
