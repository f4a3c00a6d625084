"""Sequential reading of a file in large slices, whatever the sizes of the parts that are requested."""

from __future__ import annotations

from barnabas.common.host import File

_SLICE_BYTES = 1024 * 1024


class Window:
    """The bytes of an open file by position. The last slice is kept, so that neighbouring parts need no further
    call."""

    __slots__ = ("_buffer", "_file", "_start", "end")

    def __init__(self, file: File, end: int | None = None) -> None:
        self._file = file
        self._start = 0
        self._buffer = memoryview(b"")
        #: The position where reading ends.
        self.end = file.size() if end is None else min(end, file.size())

    def at(self, position: int, size: int) -> memoryview:
        """Returns up to `size` bytes from `position`; fewer only at the end."""
        size = max(0, min(size, self.end - position))
        inside = position - self._start
        if inside < 0 or inside + size > len(self._buffer):
            wanted = min(max(size, _SLICE_BYTES), self.end - position)
            self._buffer = memoryview(self._file.read_at(position, wanted)) if size else memoryview(b"")
            self._start, inside = position, 0
        return self._buffer[inside : inside + size]
