"""A file of batches with an offset index, which finds the position of an offset."""

from __future__ import annotations

from barnabas.common.errors import RecordsRejected
from barnabas.storage.batch_file import BatchFile, NotCachedError
from barnabas.storage.index import OffsetIndex


class IndexedFile(BatchFile):
    """A file with an index. Its entries are hints: if one does not lead to a batch at or before the requested offset,
    the file is read from its beginning."""

    __slots__ = ("base_offset", "index")

    base_offset: int
    index: OffsetIndex

    def locate(self, offset: int, *, cached: bool = False) -> int | None:
        """Returns the position of the first batch whose last offset is at or above `offset`, None if there is none.

        Raises NotCachedError if `cached` and the needed data is not in memory.
        """
        if cached and not self.index.load_cached():
            raise NotCachedError
        return self.locate_from(self.index.lookup(offset), offset, cached=cached)

    def locate_from(self, entry: tuple[int, int], offset: int, *, cached: bool = False) -> int | None:
        """Locates an offset as `locate` does, starting from an index entry at or below it."""
        position = self.entry_position(entry, cached=cached)
        try:
            return self.search(offset, position, cached=cached)
        except RecordsRejected:
            if position == 0:
                raise
            return self.search(offset, 0, cached=cached)

    def _indexed_position(self, offset: int) -> int:
        return self.entry_position(self.index.lookup(offset))

    def entry_position(self, entry: tuple[int, int], *, cached: bool = False) -> int:
        """Returns the position of the batch that the index entry names; 0 if there is no such batch."""
        entry_offset, position = entry
        if not 0 < position < self.size_bytes:
            return 0
        try:
            header = self.header_at(position, cached=cached)
        except RecordsRejected:
            return 0
        return position if header.base_offset <= entry_offset <= header.last_offset else 0

    def end_offset(self) -> int:
        """Returns the offset after the last batch; the base offset if there is none."""
        end = self.base_offset
        if self.size_bytes:
            for _, header in self.headers(self._indexed_position(self.index.last()[0])):
                end = header.next_offset
        return end
