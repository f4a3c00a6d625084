"""Memory settings of this process: no pauses for garbage collection, and no page faults for the buffers of reads.

A fetch reads up to a megabyte into a fresh buffer. The C library would return each buffer to the system when it is sent
and allocate it again, page by page, for the next one: a third of the cost of such a read. It is configured to keep
some.

The buffer of a TLS connection is an exception (`map_buffers`): 256 KiB, of which an idle connection uses one page. It
is a mapping of its own, whose other pages take no memory. Within the heap it would begin with the pages that the
handshake before has used and freed: 24 kB more for each connection.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

log = logging.getLogger("barnabas.memory")

#: Collections are rare and short: long-lived objects are frozen after startup, and requests and connections leave no
#: cycles behind. A collection of the middle generation visits 25,000 objects, which takes up to 10 ms. A full
#: collection takes half a second with 50,000 partitions: none is started automatically (see `FullCollections`).
_GC_THRESHOLDS: Final = (5_000, 3, (1 << 31) - 1)
#: The growth, in blocks of Python's allocator, after which objects may be garbage that no young collection found.
_GROWN_BLOCKS_MIN: Final = 4_000_000
#: From glibc's malloc.h: free memory kept at the top of the heap, and the size from which a block is a mapping.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 * 1024 * 1024
#: The size from which a block is a mapping while the buffers of TLS connections are allocated.
_MAPPED_BYTES: Final = 128 * 1024
#: The interval of checks for free memory to return.
_CHECK_S: Final = 5.0
#: The share of the machine's memory for requests and responses, and its bounds.
_BUDGET_SHARE: Final = 16
_BUDGET_BYTES_MIN: Final = 256 * 1024 * 1024
_BUDGET_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
#: The memory limit of a container, with control groups version 2 and 1.
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class _Settings:
    """The settings of the C library. Another one than glibc lacks them."""

    mallopt: Callable[[int, int], int] | None = None


def prepare() -> None:
    """Disables garbage collection until `settle`: startup creates many long-lived objects and little garbage."""
    gc.disable()
    _Settings.mallopt = mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def map_buffers() -> None:
    """Gives each block of 128 KiB or more a mapping of its own, until `keep_buffers` is called. Does nothing in a
    process without the settings of `prepare`.
    """
    if _Settings.mallopt is not None:
        _Settings.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def keep_buffers() -> None:
    """Ends the effect of `map_buffers`."""
    if _Settings.mallopt is not None:
        _Settings.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def settle() -> None:
    """Freezes all existing objects after startup, because they stay until the process ends, and enables collection. A
    collection of these objects would block the loop for some 70 ms and find almost no garbage.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


class ProcessMemory:
    """The implementation of `common.host.Memory` for this process."""

    def budget_bytes(self) -> int:
        """Returns a sixteenth of the memory of the machine or the container: 256 MiB at least, 2 GiB at most."""
        return min(max(memory_bytes() // _BUDGET_SHARE, _BUDGET_BYTES_MIN), _BUDGET_BYTES_MAX)

    def allocate(self, size: int) -> memoryview:
        """Allocates a separate mapping: its pages take no memory before they are written, and all of them are returned
        to the system when it is freed.
        """
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


class _MallocInfo(ctypes.Structure):
    """The struct `mallinfo2` of glibc."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class FreeMemory:
    """Returns freed memory to the system, if it is more than `kept_bytes`. The C library keeps memory below a used
    block forever.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        library = ctypes.CDLL(None)
        self._info = getattr(library, "mallinfo2", None)
        self._trim = getattr(library, "malloc_trim", None)
        if self._info is not None:
            self._info.restype = _MallocInfo
        #: The lowest amount of free memory since memory was last returned: pages up to this amount were not used since,
        #: so the system still has them.
        self._given_back = 0

    def check(self) -> bool:
        """Returns memory to the system if much has become free since the last time. Returns whether it has returned
        any.
        """
        if self._info is None or self._trim is None:
            return False  # Another C library than glibc lacks this call.
        free: int = self._info().fordblks
        self._given_back = min(self._given_back, free)
        if free - self._given_back < self._kept_bytes:
            return False
        self._trim(0)
        self._given_back = free
        return True


class FullCollections:
    """Collects all generations when the number of objects has doubled since the last time. No known request leaves
    garbage for a full collection, so this only bounds the memory that a mistake, of this code or of a library, costs.
    """

    def __init__(self, grown_blocks_min: int = _GROWN_BLOCKS_MIN) -> None:
        self._grown_blocks_min = grown_blocks_min
        self._blocks = sys.getallocatedblocks()

    def check(self) -> bool:
        """Runs a full collection if the number of objects has doubled. Returns whether it did."""
        if sys.getallocatedblocks() - self._blocks < max(self._blocks, self._grown_blocks_min):
            return False
        found = gc.collect()
        self._blocks = sys.getallocatedblocks()
        log.info("a full garbage collection freed %d objects; %d blocks of memory are left", found, self._blocks)
        return True


def check_regularly(loop: asyncio.AbstractEventLoop, *, kept_bytes: int = _KEPT_BYTES) -> None:
    """Checks every `_CHECK_S` seconds from now on for garbage, and for memory to return to the system: free memory
    above `kept_bytes`.
    """
    collections, free = FullCollections(), FreeMemory(kept_bytes)

    def check() -> None:
        collections.check()
        free.check()
        loop.call_later(_CHECK_S, check)

    check()


def memory_bytes() -> int:
    """Returns the memory of this machine, or of the container of this process."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found
