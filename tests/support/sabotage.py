"""Fails one continuation of one request: only `continuations.run` runs them, so that all can be reached.

A `Saboteur` sees every call of `run` while it is installed. It counts those that belong to its victim (the connection,
the requests on it, and the requests within this process that these lead to), and makes one of them fail, either instead
of its work or right after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

from barnabas.broker.requests.client_connection import Connection
from barnabas.broker.requests.in_flight import InFlight
from barnabas.broker.requests.inner_requests import InnerRequest
from barnabas.common import continuations


class Injected(Exception):
    """An error of a kind that no code expects."""


class Saboteur:
    """A failure in the `target`-th continuation of `victim`; -1: none. `kinds` are the names of all continuations that
    it saw.
    """

    def __init__(self, victim: Connection, target: int = -1, *, after: bool = False) -> None:
        self._victim = victim
        self._target = target
        self._after = after
        self._family: list[object] = [victim]
        self.kinds: list[str] = []

    @property
    def has_struck(self) -> bool:
        return 0 <= self._target < len(self.kinds)

    def sabotaged(self, owner: object, work: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `work`, or a function that fails in its place."""
        if not self._is_of_victim(owner):
            return work
        self.kinds.append(_name(work))
        if len(self.kinds) - 1 != self._target:
            return work

        def failing(*arguments: object) -> None:
            if self._after:
                work(*arguments)
            raise Injected(_name(work))

        return failing

    def _is_of_victim(self, owner: object) -> bool:
        if isinstance(owner, InFlight):
            return owner.connection is self._victim
        if any(owner is one for one in self._family):
            return True
        if isinstance(owner, InnerRequest) and self._is_of_victim(continuations.owner()):
            self._family.append(owner)
            return True
        return False


def _name(work: Callable[..., Any]) -> str:
    if isinstance(work, partial):
        arguments = [argument for argument in work.args if callable(argument)]
        return _name(arguments[0]) if arguments else _name(work.func)
    name = getattr(work, "__qualname__", type(work).__name__)
    return f"{getattr(work, '__module__', '')}:{name}".removeprefix("barnabas.")


def _watched(owner: Any, work: Any, *arguments: object) -> Any:
    return _plain(owner, _saboteur.sabotaged(owner, work), *arguments)  # type: ignore[name-defined]  # noqa: F821


@contextmanager
def installed(saboteur: Saboteur) -> Iterator[None]:
    """Passes all calls of `continuations.run` to the saboteur while the context lasts, wherever the function was
    imported.
    """
    run: Any = continuations.run
    code, names = run.__code__, continuations.__dict__
    names["_plain"] = FunctionType(code, names, "run")
    names["_saboteur"] = saboteur
    run.__code__ = _watched.__code__
    try:
        yield
    finally:
        run.__code__ = code
        del names["_plain"], names["_saboteur"]
