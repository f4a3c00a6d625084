"""Planted mistakes as parameters of the tests that must find them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

Mutation = Callable[[pytest.MonkeyPatch], None]


def cases(mistakes: Iterable[Mutation], *, late: Collection[Mutation] = ()) -> list[Any]:
    """Returns a parameter for each mistake. Those of `late` take several seconds and are for the full suite."""
    return [pytest.param(each, id=each.__name__, marks=pytest.mark.full if each in late else ()) for each in mistakes]
