"""Freed memory is returned to the system, with no system calls when there is none."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from pathlib import Path
from barnabas.server.memory import FreeMemory, prepare

def resident_mb():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) // 1024

prepare()
free = FreeMemory()
free.check()
before = resident_mb()
held = [b"x" * 100_000 for _ in range(2_000)]
pin = bytes(100_000)
assert not free.check(), "all of it is in use"
del held
kept = resident_mb() - before
assert kept > 100, f"without it {kept} MB stay, because of the block above them"
assert free.check()
assert resident_mb() - before < 20
assert not free.check(), "it has gone back already"
held = [b"x" * 100_000 for _ in range(2_000)]
assert not free.check()
del held
assert free.check(), "it was taken again and freed again"
"""


_LESS = """
from barnabas.server.memory import FreeMemory, prepare

prepare()
some, others = FreeMemory(4_000_000), FreeMemory()
some.check()
others.check()
held = [b"x" * 100_000 for _ in range(100)]
pin = bytes(100_000)
del held
assert not others.check(), "ten megabytes are not worth a call"
assert some.check(), "they are, if less is kept"
"""


def test_a_process_can_keep_less() -> None:
    subprocess.run([sys.executable, "-c", _LESS], check=True, timeout=60)


def test_what_lies_below_a_block_in_use_goes_back() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)
