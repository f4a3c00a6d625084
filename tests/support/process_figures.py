"""Figures of a running process on Linux: memory, CPU time, descriptors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 30


def cpu_s(pid: int) -> float:
    """Returns the CPU time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """Returns the number of open descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def falls_to(limit: int, value: Callable[[], int]) -> int:
    """Waits until a value is at most this, for 30 s. Returns the last value."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while (now := value()) > limit and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return now
