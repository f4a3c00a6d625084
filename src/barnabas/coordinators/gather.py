"""Wait for several answers that come at once or later, and give them on together, in the order of the questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """`slot(i)` is where the i-th answer goes. `finish(answers)` is called once, when the last has come."""

    __slots__ = ("_answers", "_finish", "_missing")

    def __init__(self, count: int, finish: Callable[[Sequence[T]], None]) -> None:
        self._answers: list[T | None] = [None] * count
        self._missing = count
        self._finish = finish
        if count == 0:
            finish(())

    def slot(self, index: int) -> Callable[[T], None]:
        def give(answer: T) -> None:
            assert self._answers[index] is None, "one answer to a question"
            self._answers[index] = answer
            self._missing -= 1
            if self._missing == 0:
                self._finish([given for given in self._answers if given is not None])

        return give
