"""CRC-32C, the checksum of record batches and of several files: the C function of the package `crc32c`.

The package itself imports its command line too, and with it argparse, email and zipfile, which every broker would load
at startup (25 ms of CPU, 4 MB). So only its extension module is loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.late_imports import load_extension

#: `crc32c(data, crc=0)` returns the checksum of the bytes that have the checksum `crc`, followed by `data`.
crc32c: Callable[..., int] = load_extension("crc32c", "_crc32c").crc32c
