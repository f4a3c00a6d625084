"""The ports: the only interface between broker logic and time, randomness, disk, links and threads.

`server/` implements them on sockets and files, `simulation/` in a seeded world. Everything is called from the single
event-loop thread; only the work given to `Blocking.run` can run elsewhere, and its `done` is called on the loop. Disk
calls raise OSError with its usual errno; paths are plain strings joined with "/".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas.common.kerberos import Kerberos

#: Any object that exposes its bytes without copying: bytes, bytearray, memoryview.
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def now_ms(self) -> int:
        """Returns monotonic milliseconds, for deadlines and durations."""

    def now_s(self) -> float:
        """Returns the monotonic time in seconds: the cheapest reading of a clock, for work on every batch."""

    def wall_ms(self) -> int:
        """Returns milliseconds since the epoch, for record timestamps; this clock can jump."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Calls back after the current event, in the order of the calls."""


class Random(Protocol):
    def below(self, bound: int) -> int:
        """Returns a random integer in 0 <= n < bound."""

    def uuid(self) -> bytes:
        """Returns 16 random bytes, version 4; the base64 form does not begin with "-" (Kafka's `Uuid.randomUuid`)."""


class Blocking(Protocol):
    """Disk work too slow for the loop (cold reads, fsync of large files, cleaning)."""

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...

    def run_all(self, work: Sequence[Callable[[], Any]], threads: int) -> Iterator[Any]:
        """Runs all of the work now, in up to this many threads, and waits. Returns the results in the order of the
        work. Raises the exception of work that fails, and drops work that has not begun. For startup, when nothing else
        waits.
        """


class File(Protocol):
    """An open file, read and written at explicit positions; `append` writes at the end. It has no buffer."""

    def size(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """Writes all of `data` at the end. After an OSError nothing of it remains (the file is truncated); if that
        fails as well, the error is EIO.
        """

    def read_at(self, offset: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer only at the end of the file."""

    def read_at_nowait(self, offset: int, size: int) -> Buffer | None:
        """Reads like `read_at` if all of the data is in memory, otherwise returns None: then read through `Blocking`.
        If the system does not report what is in memory, this reads in any case.
        """

    def will_need(self, offset: int, size: int) -> None:
        """Hints that these bytes will be read soon. The call can wait for the disk, and never fails."""

    def write_at(self, offset: int, data: Buffer) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Syncs the file. A full disk raises EIO here, never ENOSPC, because earlier writes may be lost."""

    def close(self) -> None: ...


class Directory(Protocol):
    """An open directory, which can be synced without another descriptor."""

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
        """Returns the names in the directory, sorted."""

    def make_dirs(self, path: str) -> None:
        """Creates a directory and its parents; an existing directory is not an error."""

    def rename(self, source: str, target: str) -> None:
        """Renames atomically; replaces a file at `target`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def open_dir(self, path: str) -> Directory:
        """Opens a directory for several syncs, none of which may fail because of a missing descriptor."""

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Creates or replaces a file. This is not atomic; `storage.checkpoints.write_atomically` is the safe form."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def usage(self, path: str) -> DiskUsage: ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock on this file, which is created if it is missing. Raises BlockingIOError if another
        process has it.
        """


class Link(Protocol):
    """A connection as the broker sees it: its outgoing side. The host passes incoming bytes to the connection core."""

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Queues these bytes; they belong to the link from now on."""

    @property
    def unsent_bytes(self) -> int:
        """Returns how many written bytes the system has not accepted yet."""

    def pause_reading(self) -> None:
        """Stops reading until `resume_reading`: the peer sends faster than it is served."""

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Ends the connection after written data is sent."""

    def abort(self) -> None:
        """Ends the connection and drops unsent data."""


class LinkCondition(NamedTuple):
    """The condition of the network under a connection, as the system knows it (TCP_INFO)."""

    #: The smoothed round trip; 0 before the first one.
    round_trip_us: int
    #: The number of segments that were sent again, since the connection was made.
    retransmits: int
    #: Whether the peer's system has not acknowledged what was sent.
    is_unacknowledged: bool


class PeerLink(Link, Protocol):
    """A connection that this side has opened."""

    def condition(self) -> LinkCondition | None:
        """Returns the condition of the network below; None if the system does not report it, or there is no
        connection.
        """


class LinkEnd(Protocol):
    """The owner of an outgoing connection, with the same events as an accepted connection."""

    def connected(self) -> None:
        """Reports that the link can be written to from now on."""

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; it is never empty."""

    def received(self, count: int) -> None:
        """Reports that `count` bytes are in the last buffer."""

    def closed(self, error: OSError | None) -> None:
        """Reports the end exactly once, as the last call, unless this side closed the link: None if the peer ended it,
        else the error. Before `connected` the dial failed: ConnectionRefusedError means that no process listens there.
        """


class Links(Protocol):
    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        """Connects to a peer. Returns immediately, and calls no method of `end` before it has returned.

        `tls` is the name of the listener whose TLS settings apply to the connection; None means plain text.
        """


class WebRequest(NamedTuple):
    """A request to a server of the web. Its content is never shown."""

    url: str
    #: The content of a POST request; None for GET.
    content: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 10_000
    #: A larger response is refused.
    bytes_max: int = 1 << 18

    def __repr__(self) -> str:
        return f"WebRequest({self.url})"


class Web(Protocol):
    def fetch(self, request: WebRequest, done: Callable[[bytes | None, OSError | None], None]) -> None:
        """Fetches a document, without redirects. `done` gets its bytes, or the error; it is called later, at the latest
        after the timeout.
        """


class Memory(Protocol):
    """Information about the memory of the process, for the core's limits."""

    def budget_bytes(self) -> int:
        """Returns the memory limit for requests and responses, if the configuration does not set it."""

    def allocate(self, size: int) -> Buffer:
        """Returns writable memory with any content. It takes physical memory only as it is written, and is returned to
        the system as a whole. Raises OSError or MemoryError if the system refuses.
        """


class FaultHandler(Protocol):
    def fatal(self, message: str, error: BaseException | None = None) -> None:
        """Ends the process, which must not continue."""

    def report(self, message: str, error: BaseException | None = None) -> None:
        """Logs and counts an error; the process continues."""

    def warn(self, message: str) -> None:
        """Logs a warning: the process continues, and an operator should look at it."""

    def inform(self, message: str) -> None:
        """Logs information for an operator; not a fault."""


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
    def web(self) -> Web: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def faults(self) -> FaultHandler: ...
    @property
    def kerberos(self) -> Kerberos: ...
    @property
    def tickets(self) -> Blocking:
        """Returns the worker in which requests to the KDC run, one at a time."""

    def cpu_ns(self) -> int:
        """Returns the CPU time that the thread of the event loop has used. It is read only where a quota needs it."""

    def process_cpu_ns(self) -> int:
        """Returns the CPU time that the process has used: it stands still while the process is paused."""

    def cpu_wait_ns(self) -> int:
        """Returns the time that the thread of the event loop was ready to run, and waited for a CPU that others used;
        0 if the system does not report it.
        """

    def machine_up_ms(self) -> int:
        """Returns the time since the start of the machine; 0 if the system does not report it."""
