"""Sorting of long lists in steps, for handlers whose work is divided between turns of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T", str, bytes, int)

#: The number of elements that are sorted, or merged, in about a quarter of a millisecond.
_SORTED_PER_UNIT: Final = 1_000
_MERGED_PER_UNIT: Final = 10_000


def sorted_gradually(items: Iterable[T]) -> Generator[int, None, list[T]]:
    """Returns the items in order. It yields units of work like `broker.requests.steps`."""
    iterator = iter(items)
    runs: deque[list[T]] = deque()
    while run := sorted(islice(iterator, _SORTED_PER_UNIT)):
        runs.append(run)
        yield 1
    while len(runs) > 1:
        merged = runs.popleft() + runs.popleft()
        # Python's sort merges two runs that are in order with one comparison for each element.
        merged.sort()
        runs.append(merged)
        yield 1 + len(merged) // _MERGED_PER_UNIT
    return runs[0] if runs else []
