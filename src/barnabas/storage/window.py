"""Reading a file from front to back in large slices, whatever the sizes of what is in it."""

from __future__ import annotations

from barnabas.common.host import File

_SLICE_BYTES = 1024 * 1024


class Window:
    """Bytes of an open file by position. What was read last is kept, so that neighbours cost no call."""

    __slots__ = ("_buffer", "_file", "_start", "end")

    def __init__(self, file: File, end: int | None = None) -> None:
        self._file = file
        self._start = 0
        self._buffer = memoryview(b"")
        #: Nothing behind it is looked at.
        self.end = file.size() if end is None else min(end, file.size())

    def at(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes from there; fewer only at the end."""
        size = max(0, min(size, self.end - position))
        inside = position - self._start
        if inside < 0 or inside + size > len(self._buffer):
            wanted = min(max(size, _SLICE_BYTES), self.end - position)
            self._buffer = memoryview(self._file.read_at(position, wanted)) if size else memoryview(b"")
            self._start, inside = position, 0
        return self._buffer[inside : inside + size]
