"""Long work in portions: a generator that yields between them, and whose value is the result.

A caller with a loop of its own takes the next portion in a later turn; `whole` runs all of them without a pause.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")
Portions = Generator[None, None, T]


#: The number of partitions of a large topic that are handled in one portion.
PARTITIONS_IN_PORTION: Final = 1_000


def whole(work: Generator[Any, None, T]) -> T:
    """Runs all portions, or steps, without a pause. Returns the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
