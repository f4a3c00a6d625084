"""How this process keeps memory: no collector pauses, and no page faults for the buffers of every read.

A fetch reads up to a megabyte into a fresh buffer. The C library would give each back to the system when it is sent and
take it again, page by page, for the next one: a third of what such a read costs. It is told to keep some.
"""

from __future__ import annotations

import ctypes
import gc

#: Collections are rare and small: what lives long is frozen after the start, and requests leave no cycles behind.
_GC_THRESHOLDS = (50_000, 20, 100)
#: From glibc's malloc.h: free memory kept at the top of the heap, and the size from which a block is a mapping.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 * 1024 * 1024


def prepare() -> None:
    """Before the start, which makes much that stays and leaves little behind: collecting waits until `settle`."""
    gc.disable()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library than glibc has its own ways
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def settle() -> None:
    """After the start, when what is there will stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
