"""The receiving half of a connection, without I/O: it splits a stream of bytes into frames.

A frame is a 4-byte size and that many bytes (Kafka protocol guide, "Network"). All connections of one event loop share
one receive area: the host reads into it and passes the bytes on, so an idle connection holds no buffer at all. Only an
incomplete frame moves to its connection's own buffer, and back before the next read, which can then be as large as the
first. A large frame gets its full size from `allocate`, whose memory costs nothing before it is written; without that,
its buffer doubles as it fills. A peer that announces a huge frame and sends nothing therefore costs nothing.

    host                      FrameReader
    get_buffer()         ->   the memory to read into
    received(n)          ->   n bytes have been read; not called if there was nothing to read
    next_frame()         ->   a view of one frame's body, or None; valid until the next call of any method

Before another connection can read into the shared area, the host takes frames until there is none, or keeps the rest
with `keep_unserved`.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import DecodeError, FrameTooLarge
from barnabas.common.host import Buffer

SHARED_AREA_BYTES = 256 * 1024
_OWN_BYTES_MIN = 4 * 1024
#: The first bytes of a TLS handshake (type 22, TLS 1.0 to 1.2 as its outer version), which read as a size of 369 MB.
_TLS_HANDSHAKES = (0x160301, 0x160302, 0x160303)
#: Frames of at least this size get memory from `ReceiveArea.allocate` for all of it when they begin to arrive.
_ALLOCATED_BYTES_MIN = 32 * 1024
_POOLED_BYTES_MAX = 4 * 1024 * 1024
_POOLED_BUFFERS_MAX = 4


class ReceiveArea:
    """The buffers that the connections of one loop share: the area to read into, and a few large buffers for reuse.

    `allocate(size)` returns writable memory of that size with any content, which uses physical memory only as it is
    written; it raises OSError or MemoryError if the system refuses. Without it, buffers double as they fill.
    """

    __slots__ = ("_allocate", "_free", "held_bytes", "read_bytes_max", "view")

    def __init__(self, size: int = SHARED_AREA_BYTES, allocate: Callable[[int], Buffer] | None = None) -> None:
        self.view = memoryview(bytearray(size))
        self._allocate = allocate
        self._free: list[Buffer] = []
        #: The number of received bytes of incomplete or unserved frames, of all connections.
        self.held_bytes = 0
        #: The maximum number of bytes that one call reads. It is below the area's size when memory is short, because
        #: the bytes that are read have to be kept.
        self.read_bytes_max = size

    def take(self, size: int) -> Buffer:
        """Returns a buffer of at least `size` bytes, whose content is undefined."""
        for index, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(index)
        return bytearray(size)

    def take_large(self, size: int) -> Buffer | None:
        """Returns a buffer like `take`, for a size that may never be filled; None if the system refuses."""
        if size <= _POOLED_BYTES_MAX:
            for index, buffer in enumerate(self._free):
                if len(buffer) >= size:
                    return self._free.pop(index)
        if self._allocate is None:
            return None
        if size <= _POOLED_BYTES_MAX:
            # Frames of one producer differ by some bytes: rounding lets one buffer serve the next frame.
            size = 1 << (size - 1).bit_length()
        try:
            return self._allocate(size)
        except (OSError, MemoryError):
            return None

    def give_back(self, buffer: Buffer) -> None:
        if _ALLOCATED_BYTES_MIN <= len(buffer) <= _POOLED_BYTES_MAX and len(self._free) < _POOLED_BUFFERS_MAX:
            self._free.append(buffer)


class FrameReader:
    """Splits a byte stream into frames. It cannot be used after FrameTooLarge or DecodeError of `next_frame`."""

    __slots__ = ("_area", "_end", "_frame_bytes_max", "_is_copied", "_own", "_start", "_view", "held_bytes")

    def __init__(self, area: ReceiveArea, frame_bytes_max: int) -> None:
        self._area = area
        self._frame_bytes_max = frame_bytes_max
        self._own: Buffer | None = None
        #: Whether the last `get_buffer` returned the shared area after a copy of the content of the connection's own
        #: buffer.
        self._is_copied = False
        #: Bytes written to the connection's own buffer.
        self.held_bytes = 0
        self._view = area.view
        self._start = 0
        self._end = 0

    def limit_frames(self, frame_bytes_max: int) -> None:
        """Changes the size of the largest frame, from the next frame on."""
        self._frame_bytes_max = frame_bytes_max

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; it is never empty."""
        if self._start == self._end:
            if self._own is None:
                self._start = self._end = 0
            else:
                self._release()
            area = self._area
            return area.view if area.read_bytes_max >= len(area.view) else area.view[: area.read_bytes_max]
        if self._own is not None and self._copied():
            begin, area = self._end - self._start, self._area
            return area.view[begin : begin + area.read_bytes_max]
        view = self._view
        if self._end == len(view):
            self._grow()
            view = self._view
        end, area = self._end, self._area
        return view[end:] if area.read_bytes_max >= len(area.view) else view[end : end + area.read_bytes_max]

    def received(self, count: int) -> None:
        if self._is_copied:
            buffered = self._end - self._start
            self._release()
            self._end = buffered
        self._end += count
        if self._end > self.held_bytes and self._own is not None:
            self._area.held_bytes += self._end - self.held_bytes
            self.held_bytes = self._end

    @property
    def missing_bytes(self) -> int:
        """Returns the number of bytes that the incomplete frame lacks; 0 if there is none."""
        return max(0, self._announced() - (self._end - self._start)) if self._own is not None else 0

    def next_frame(self) -> memoryview | None:
        """Returns the body of the next complete frame (without its size), or None if more bytes are needed."""
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
            if size >> 8 in _TLS_HANDSHAKES:
                raise FrameTooLarge("the client speaks TLS, which this listener does not (its security.protocol?)")
            raise FrameTooLarge(f"frame of {size} bytes; at most {self._frame_bytes_max} are accepted")
        if buffered < 4 + size:
            self._keep_unfinished()
            return None
        end = start + 4 + size
        self._start = end
        return view[start + 4 : end]

    def keep_unserved(self) -> None:
        """Releases the shared area before all frames were taken. The last frame's view becomes invalid."""
        buffered = self._end - self._start
        if self._own is None and buffered:
            self._adopt(self._area.take(buffered))

    def close(self) -> None:
        """Discards all data and returns the buffer."""
        self._start = self._end = 0
        self._release()

    def _release(self) -> None:
        self._start = self._end = 0
        self._is_copied = False
        if self._own is not None:
            own, self._own = self._own, None
            self._view = self._area.view
            self._area.held_bytes -= self.held_bytes
            self.held_bytes = 0
            self._area.give_back(own)

    def _announced(self) -> int:
        """Returns the size of the incomplete frame with its size field, as far as it is known."""
        if self._end - self._start < 4:
            return 4
        return 4 + int.from_bytes(self._view[self._start : self._start + 4], "big")

    def _keep_unfinished(self) -> None:
        """Copies incomplete data to a buffer of this connection, because other connections use the shared area next."""
        buffered = self._end - self._start
        if self._own is None and buffered:
            self._adopt(self._larger_buffer(buffered))

    def _copied(self) -> bool:
        """Copies the beginning of a small frame to the shared area. Returns False for a large one. The connection keeps
        its own buffer until `received`, because other connections use the shared area if no data arrived.
        """
        start, end, area = self._start, self._end, self._area.view
        buffered = end - start
        self._is_copied = buffered < _ALLOCATED_BYTES_MIN > self._announced() and 2 * buffered <= len(area)
        if self._is_copied:
            area[:buffered] = self._view[start:end]
        return self._is_copied

    def _grow(self) -> None:
        """Enlarges the full buffer, first by reusing the space of frames that were taken."""
        buffered = self._end - self._start
        if self._start > 0 and buffered <= self._start:
            view = self._view
            view[:buffered] = view[self._start : self._end]
            self._start, self._end = 0, buffered
            return
        self._adopt(self._larger_buffer(buffered))

    def _larger_buffer(self, buffered: int) -> Buffer:
        """Returns a buffer for the `buffered` bytes and more: of an incomplete frame, or of unserved complete ones."""
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
