"""A small state machine as a table, with one method that makes every change of state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)


class Automaton(Generic[S]):
    """Holds one state. `table` maps each state to the states it can move to; anything else is a broken invariant."""

    __slots__ = ("_table", "state")

    def __init__(self, table: Mapping[S, frozenset[S]], initial: S) -> None:
        self._table = table
        self.state = initial

    def move(self, target: S) -> S:
        """Moves to `target`; returns the previous state. Raises AssertionError if the table does not allow it."""
        source = self.state
        assert target in self._table[source], f"no transition {source.name} -> {target.name}"
        self.state = target
        return source

    def may_move(self, target: S) -> bool:
        return target in self._table[self.state]
