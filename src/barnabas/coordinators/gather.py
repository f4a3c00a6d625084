"""Collects several answers that arrive now or later, and passes them on together in the order of the requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """Collects `count` answers. `slot(i)` returns the callback for the i-th one; `finish(answers)` is called once,
    after the last."""

    __slots__ = ("_answers", "_finish", "_missing")

    def __init__(self, count: int, finish: Callable[[Sequence[T]], None]) -> None:
        self._answers: list[T | None] = [None] * count
        self._missing = count
        self._finish = finish
        if count == 0:
            finish(())

    def slot(self, index: int) -> Callable[[T], None]:
        """Returns the callback for the answer to the request with this index."""

        def give(answer: T) -> None:
            assert self._answers[index] is None, "each slot receives one answer"
            self._answers[index] = answer
            self._missing -= 1
            if self._missing == 0:
                self._finish([given for given in self._answers if given is not None])

        return give
