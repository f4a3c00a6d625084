"""The receiving half of a connection, without I/O: bytes in, whole frames out.

A frame is a 4-byte size and that many bytes (Kafka protocol guide, "Network"). All connections of one event loop share
one receive area: the host reads into it and hands the bytes over at once, so an idle connection holds no buffer at all.
Only a frame that has not arrived whole moves to a buffer of its own connection, which grows with what has really been
received, so a peer that announces a huge frame and sends nothing costs nothing.

    host                      FrameReader
    get_buffer()         ->   where to read into
    received(n)          ->   the n bytes are there
    next_frame()         ->   a view of one frame's body, or None; valid until the next call of anything here

Before another connection may read into the shared area, frames are asked for until there is none, or kept for later
with `keep_unserved`.
"""

from __future__ import annotations

from barnabas.common.errors import DecodeError, FrameTooLarge

SHARED_AREA_BYTES = 256 * 1024
_GROWTH_BYTES_MIN = 64 * 1024
_POOLED_BYTES_MAX = 4 * 1024 * 1024
_POOLED_BUFFERS_MAX = 4


class ReceiveArea:
    """What the connections of one loop share: the area to read into, and a few large buffers to use again."""

    __slots__ = ("_free", "view")

    def __init__(self, size: int = SHARED_AREA_BYTES) -> None:
        self.view = memoryview(bytearray(size))
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with any content."""
        for index, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(index)
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) <= _POOLED_BYTES_MAX and len(self._free) < _POOLED_BUFFERS_MAX:
            self._free.append(buffer)


class FrameReader:
    """Cuts a byte stream into frames. `next_frame` raises FrameTooLarge or DecodeError; then the stream is lost."""

    __slots__ = ("_area", "_end", "_frame_bytes_max", "_own", "_own_view", "_start", "_view")

    def __init__(self, area: ReceiveArea, frame_bytes_max: int) -> None:
        self._area = area
        self._frame_bytes_max = frame_bytes_max
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._view = area.view
        self._start = 0
        self._end = 0

    def get_buffer(self) -> memoryview:
        """Room for the next bytes, never empty."""
        if self._start == self._end:
            self._release()
            return self._area.view
        view = self._view
        if self._end == len(view):
            self._grow()
            view = self._view
        return view[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The body of the next whole frame (without its size), or None when more bytes are needed."""
        start = self._start
        buffered = self._end - start
        if buffered < 4:
            self._keep_unfinished()
            return None
        view = self._view
        size = view[start] << 24 | view[start + 1] << 16 | view[start + 2] << 8 | view[start + 3]
        if size > self._frame_bytes_max:
            if size >= 0x80000000:
                raise DecodeError(f"negative frame size {size - 0x100000000}")
            raise FrameTooLarge(f"frame of {size} bytes, at most {self._frame_bytes_max} are taken")
        if buffered < 4 + size:
            self._keep_unfinished()
            return None
        end = start + 4 + size
        self._start = end
        return view[start + 4 : end]

    def keep_unserved(self) -> None:
        """No more frames are asked for now: leave the shared area to the others. The last frame's view ends here."""
        if self._own is None and self._start < self._end:
            self._adopt(self._area.take(self._end - self._start))

    def close(self) -> None:
        """Forget everything and return the buffer."""
        self._start = self._end = 0
        self._release()

    def _release(self) -> None:
        self._start = self._end = 0
        if self._own is not None:
            assert self._own_view is not None
            own, self._own, self._own_view = self._own, None, None
            self._view = self._area.view
            self._area.give_back(own)

    def _announced(self) -> int:
        """Bytes of the unfinished frame with its size field, as far as known."""
        if self._end - self._start < 4:
            return 4
        return 4 + int.from_bytes(self._view[self._start : self._start + 4], "big")

    def _keep_unfinished(self) -> None:
        """The shared area is for the next connection: keep what is unfinished. A frame that has begun to arrive in
        good measure gets its whole room at once; one that was only announced gets little."""
        buffered = self._end - self._start
        if self._own is not None or buffered == 0:
            return
        room = min(self._announced(), max(_GROWTH_BYTES_MIN, 16 * buffered))
        self._adopt(self._area.take(max(room, _GROWTH_BYTES_MIN)))

    def _grow(self) -> None:
        """The own buffer is full: first use the room of frames already taken, else double."""
        buffered = self._end - self._start
        if self._start > 0 and buffered <= self._start:
            view = self._view
            view[:buffered] = view[self._start : self._end]
            self._start, self._end = 0, buffered
            return
        self._adopt(bytearray(max(min(self._announced(), 4 * len(self._view)), buffered + _GROWTH_BYTES_MIN)))

    def _adopt(self, buffer: bytearray) -> None:
        view = memoryview(buffer)
        buffered = self._end - self._start
        view[:buffered] = self._view[self._start : self._end]
        old = self._own
        self._own, self._own_view, self._view = buffer, view, view
        self._start, self._end = 0, buffered
        if old is not None:
            self._area.give_back(old)
