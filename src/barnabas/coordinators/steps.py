"""Work for one request or one group that is too large for one turn of the loop.

A request can name hundreds of thousands of rows. They are processed by a generator that yields every `ROWS` rows: the
part before the first `yield` runs immediately, the rest in later turns of the loop, so that other requests are served
in between. Everything may have changed between two turns: a generator checks again what it relies on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from barnabas.common import effort
from barnabas.common.effort import Work
from barnabas.common.host import Timers

T = TypeVar("T")
#: The number of rows that take some milliseconds.
ROWS: Final = 1_000
#: The fixed cost per name, and the bound for a part, in characters of a name.
_NAME_WEIGHT: Final = 60
_PART_WEIGHT: Final = 40_000


def in_steps(timers: Timers, work: Iterator[None]) -> None:
    """Runs `work` up to its first `yield` now, and the rest in later turns of the loop."""
    for _ in work:
        timers.call_soon(lambda: in_steps(timers, work))
        return


def parts(rows: Sequence[T], size: int = ROWS) -> Iterator[Sequence[T]]:
    """Yields `rows` in parts of `size`; `rows` itself if there are no more than that, even if there are none."""
    if len(rows) <= size:
        yield rows
        return
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        effort.add(Work.ROW, len(part))
        yield part


def by_weight(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields names of groups in parts that each take some milliseconds: the hash of a name costs time per character."""
    part: list[str] = []
    weight = 0
    for name in names:
        part.append(name)
        weight += _NAME_WEIGHT + len(name)
        if weight >= _PART_WEIGHT:
            yield part
            part, weight = [], 0
    if part:
        yield part
