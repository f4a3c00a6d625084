"""The one function of objgraph that kazoo's tests call."""

from __future__ import annotations

import gc


def count(name: str) -> int:
    """Returns how many objects of a class there are."""
    return sum(type(each).__name__ == name for each in gc.get_objects())
