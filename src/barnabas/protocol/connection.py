"""The receiving half of a connection, without I/O: bytes in, whole frames out.

A frame is a 4-byte size and that many bytes (Kafka protocol guide, "Network"). All connections of one event loop share
one receive area: the host reads into it and hands the bytes over, so an idle connection holds no buffer at all. Only a
frame that has not arrived whole moves to a buffer of its own connection. A small buffer doubles with what has been
received; a large frame gets all its room from `allocate`, whose memory costs nothing before it is written. A peer that
announces a huge frame and sends nothing therefore costs nothing.

    host                      FrameReader
    get_buffer()         ->   where to read into
    received(n)          ->   the n bytes are there
    next_frame()         ->   a view of one frame's body, or None; valid until the next call of anything here

Before another connection may read into the shared area, frames are asked for until there is none, or kept for later
with `keep_unserved`.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import DecodeError, FrameTooLarge
from barnabas.common.host import Buffer

SHARED_AREA_BYTES = 256 * 1024
_OWN_BYTES_MIN = 4 * 1024
#: Frames from this size on get all their room from `ReceiveArea.allocate` when they begin to arrive.
_ALLOCATED_BYTES_MIN = 32 * 1024
_POOLED_BYTES_MAX = 4 * 1024 * 1024
_POOLED_BUFFERS_MAX = 4


class ReceiveArea:
    """What the connections of one loop share: the area to read into, and a few large buffers to use again.

    `allocate(size)` returns writable memory of that size with any content, which is used up only as it is written;
    it raises OSError or MemoryError where the system refuses. Without it, buffers double as they fill.
    """

    __slots__ = ("_allocate", "_free", "held_bytes", "read_bytes_max", "view")

    def __init__(self, size: int = SHARED_AREA_BYTES, allocate: Callable[[int], Buffer] | None = None) -> None:
        self.view = memoryview(bytearray(size))
        self._allocate = allocate
        self._free: list[Buffer] = []
        #: Received bytes of unfinished or unserved frames, of all connections.
        self.held_bytes = 0
        #: The most bytes that a connection reads at once, if it is less than the area: where memory is short, for what
        #: is read has to be kept.
        self.read_bytes_max = size

    def take(self, size: int) -> Buffer:
        """A buffer of at least `size` bytes with any content."""
        for index, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(index)
        return bytearray(size)

    def take_large(self, size: int) -> Buffer | None:
        """As `take`, for a size that may never be filled; None where the system refuses."""
        if size <= _POOLED_BYTES_MAX:
            for index, buffer in enumerate(self._free):
                if len(buffer) >= size:
                    return self._free.pop(index)
        if self._allocate is None:
            return None
        if size <= _POOLED_BYTES_MAX:
            # Frames of one producer differ by some bytes: the buffer of one is to serve the next.
            size = 1 << (size - 1).bit_length()
        try:
            return self._allocate(size)
        except (OSError, MemoryError):
            return None

    def give_back(self, buffer: Buffer) -> None:
        if _ALLOCATED_BYTES_MIN <= len(buffer) <= _POOLED_BYTES_MAX and len(self._free) < _POOLED_BUFFERS_MAX:
            self._free.append(buffer)


class FrameReader:
    """Cuts a byte stream into frames. `next_frame` raises FrameTooLarge or DecodeError; then the stream is lost."""

    __slots__ = ("_area", "_end", "_frame_bytes_max", "_own", "_start", "_view", "held_bytes")

    def __init__(self, area: ReceiveArea, frame_bytes_max: int) -> None:
        self._area = area
        self._frame_bytes_max = frame_bytes_max
        self._own: Buffer | None = None
        #: Bytes written to the buffer of its own.
        self.held_bytes = 0
        self._view = area.view
        self._start = 0
        self._end = 0

    def get_buffer(self) -> memoryview:
        """Room for the next bytes, never empty."""
        if self._start == self._end:
            self._release()
            area = self._area
            return area.view if area.read_bytes_max >= len(area.view) else area.view[: area.read_bytes_max]
        view = self._view
        if self._end == len(view):
            self._grow()
            view = self._view
        end, area = self._end, self._area
        return view[end:] if area.read_bytes_max >= len(area.view) else view[end : end + area.read_bytes_max]

    def received(self, count: int) -> None:
        self._end += count
        if self._end > self.held_bytes and self._own is not None:
            self._area.held_bytes += self._end - self.held_bytes
            self.held_bytes = self._end

    @property
    def missing_bytes(self) -> int:
        """What the unfinished frame lacks; 0 without one."""
        return max(0, self._announced() - (self._end - self._start)) if self._own is not None else 0

    def next_frame(self) -> memoryview | None:
        """The body of the next whole frame (without its size), or None when more bytes are needed."""
        start = self._start
        buffered = self._end - start
        if buffered < 4:
            if buffered:
                self._keep_unfinished()
            elif self._own is not None:
                self._release()
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
        buffered = self._end - self._start
        if self._own is None and buffered:
            self._adopt(self._area.take(buffered))

    def close(self) -> None:
        """Forget everything and return the buffer."""
        self._start = self._end = 0
        self._release()

    def _release(self) -> None:
        self._start = self._end = 0
        if self._own is not None:
            own, self._own = self._own, None
            self._view = self._area.view
            self._area.held_bytes -= self.held_bytes
            self.held_bytes = 0
            self._area.give_back(own)

    def _announced(self) -> int:
        """Bytes of the unfinished frame with its size field, as far as known."""
        if self._end - self._start < 4:
            return 4
        return 4 + int.from_bytes(self._view[self._start : self._start + 4], "big")

    def _keep_unfinished(self) -> None:
        """The shared area is for the next connection: keep what is unfinished."""
        buffered = self._end - self._start
        if self._own is None and buffered:
            self._adopt(self._room_for_more(buffered))

    def _grow(self) -> None:
        """The own buffer is full: first use the room of frames already taken, else take a larger one."""
        buffered = self._end - self._start
        if self._start > 0 and buffered <= self._start:
            view = self._view
            view[:buffered] = view[self._start : self._end]
            self._start, self._end = 0, buffered
            return
        self._adopt(self._room_for_more(buffered))

    def _room_for_more(self, buffered: int) -> Buffer:
        """A buffer for the `buffered` bytes that are there and more: of an unfinished frame, or of whole frames that
        are not served yet."""
        announced = self._announced()
        if announced <= buffered:
            return self._area.take(2 * buffered)
        if announced >= _ALLOCATED_BYTES_MIN:
            large = self._area.take_large(announced)
            if large is not None:
                return large
        return self._area.take(max(_OWN_BYTES_MIN, min(announced, 2 * buffered)))

    def _adopt(self, buffer: Buffer) -> None:
        view = memoryview(buffer)
        buffered = self._end - self._start
        view[:buffered] = self._view[self._start : self._end]
        old = self._own
        self._own, self._view = buffer, view
        self._start, self._end = 0, buffered
        self._area.held_bytes += buffered - self.held_bytes
        self.held_bytes = buffered
        if old is not None:
            self._area.give_back(old)
