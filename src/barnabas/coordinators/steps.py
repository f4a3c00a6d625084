"""Work of one request or one group that is too large for one turn of the loop.

A request may name hundreds of thousands of rows. What goes through them is a generator that yields every `ROWS` rows:
what is up to the first `yield` is done at once, the rest in turns of the loop of its own, so that others are served in
between. Between two turns everything may have changed: who goes on looks again at what it relies on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from barnabas.common import effort
from barnabas.common.effort import Work
from barnabas.common.host import Timers

T = TypeVar("T")
#: So many rows are some milliseconds.
ROWS: Final = 1_000
#: In letters of a name: what each name costs beside them, and what a part may cost.
_NAME_WEIGHT: Final = 60
_PART_WEIGHT: Final = 40_000


def in_steps(timers: Timers, work: Iterator[None]) -> None:
    """Goes through `work`."""
    for _ in work:
        timers.call_soon(lambda: in_steps(timers, work))
        return


def parts(rows: Sequence[T], size: int = ROWS) -> Iterator[Sequence[T]]:
    """`rows` in parts of `size`; they themselves where they are few, also where there are none."""
    if len(rows) <= size:
        yield rows
        return
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        effort.add(Work.ROW, len(part))
        yield part


def by_weight(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Names of groups in parts that each take some milliseconds: to find where a group belongs costs by the letter."""
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
