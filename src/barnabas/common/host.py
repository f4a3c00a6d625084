"""The ports: the only door through which broker logic meets time, chance, disk, links and threads.

`server/` implements them on sockets and files, `simulation/` in a seeded world. Everything is called from the one
event-loop thread; only the work given to `Blocking.run` may run elsewhere, and its `done` is called on the loop again.
Disk calls raise OSError with its usual errno; paths are plain strings joined with "/".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

#: Anything that offers its bytes without copying: bytes, bytearray, memoryview.
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds, for deadlines and durations."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for record timestamps; may jump."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """After the event at hand, in the order of the calls."""


class Random(Protocol):
    def below(self, bound: int) -> int:
        """An integer in 0 <= n < bound."""

    def uuid(self) -> bytes:
        """16 random bytes, version 4, whose base64 form does not begin with "-" (as Kafka's `Uuid.randomUuid`)."""


class Blocking(Protocol):
    """Disk work too slow for the loop (cold reads, fsync of large files, cleaning)."""

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...

    def run_all(self, work: Sequence[Callable[[], Any]], threads: int) -> Iterator[Any]:
        """Do all of it now, in up to so many threads, and wait: the results in the order of the work. What one raises
        is raised in its place, and what was not begun then never is. For the start, when nothing else is to be done."""


class File(Protocol):
    """An open file, read and written at explicit places; `append` writes at the end. No buffering of its own."""

    def size(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. On OSError nothing of it is kept (the file is cut back); where that fails as
        well, the error is EIO."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_at_nowait(self, offset: int, size: int) -> Buffer | None:
        """As `read_at` if memory has all of it, else None: then read through `Blocking`. Where the system cannot tell,
        it is read as if memory had it."""

    def will_need(self, offset: int, size: int) -> None:
        """A hint that this will be read soon. May wait for the disk; never fails."""

    def write_at(self, offset: int, data: Buffer) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """A full disk is EIO here, never ENOSPC: what was written before may be lost."""

    def close(self) -> None: ...


class Directory(Protocol):
    """An open directory: its names can be made sure without another descriptor."""

    def sync(self) -> None: ...

    def close(self) -> None: ...


class DiskUsage(NamedTuple):
    total_bytes: int
    usable_bytes: int


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> Sequence[str]:
        """Names in it, sorted."""

    def make_dirs(self, path: str) -> None:
        """With its parents; an existing directory is no error."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def open_dir(self, path: str) -> Directory:
        """For several syncs, of which none may fail for want of a descriptor."""

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Create or replace, not atomically; `storage.checkpoints.write_atomically` is the safe form."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def usage(self, path: str) -> DiskUsage: ...

    def lock(self, path: str) -> Lock:
        """An exclusive lock on this file, made if need be. Raises BlockingIOError when another process has it."""


class Link(Protocol):
    """One connection as the broker sees it: a way out. What comes in is handed to the connection core by the host."""

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Queue these bytes; they belong to the link from now on."""

    @property
    def unsent_bytes(self) -> int:
        """What was written and the system has not taken yet."""

    def pause_reading(self) -> None:
        """The peer sends faster than it is answered: take no more until `resume_reading`."""

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """End the connection once what was written is sent."""

    def abort(self) -> None:
        """End the connection and drop what was written and not sent."""


class LinkEnd(Protocol):
    """Who dialled: hears what becomes of the connection, as a connection that was accepted does."""

    def connected(self) -> None:
        """The link can be written to from now on; nothing is written before."""

    def get_buffer(self) -> memoryview:
        """Where the next bytes go, never empty."""

    def received(self, count: int) -> None:
        """`count` bytes are in the buffer last given."""

    def closed(self, error: OSError | None) -> None:
        """Exactly once, and the last call, unless this side closed the link: the peer ended it (None), or what went
        wrong. Before `connected` the dial failed: ConnectionRefusedError says that nobody listens there."""


class Links(Protocol):
    def dial(self, host: str, port: int, end: LinkEnd) -> Link:
        """Connect to a peer. Returns at once, and calls nothing of `end` before it has returned."""


class Memory(Protocol):
    """The memory of the process, as far as the core decides about it."""

    def budget_bytes(self) -> int:
        """What requests and answers may take together, if the configuration does not say."""

    def allocate(self, size: int) -> Buffer:
        """Writable memory with any content, which is used up only as it is written, and goes back to the system as a
        whole. Raises OSError or MemoryError where the system refuses."""


class FaultHandler(Protocol):
    def fatal(self, message: str, error: BaseException | None = None) -> None:
        """This process must not go on."""

    def report(self, message: str, error: BaseException | None = None) -> None:
        """Logged and counted; the process goes on."""

    def warn(self, message: str) -> None:
        """Logged as a warning: the process goes on, and somebody should look at it."""

    def inform(self, message: str) -> None:
        """Logged: no fault, but what somebody who waits wants to know."""


class Host(Protocol):
    """All ports of one node."""

    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def random(self) -> Random: ...
    @property
    def blocking(self) -> Blocking: ...
    @property
    def disk(self) -> Disk: ...
    @property
    def links(self) -> Links: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def faults(self) -> FaultHandler: ...
