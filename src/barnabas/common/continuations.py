"""The one place where delayed parts of requests run, and where their failures end.

A request is often served in parts: after a commit, a disk's response, a deadline or another node's reply. Each part
belongs to an owner, the request that it continues. `later` wraps a callback when it is registered and stores the owner
of the current work; the callback then runs for this owner again, and the callbacks that it registers have the same
owner. The ports of the host do this for timers and slow work.

    run(owner, work, ...)     runs work for that owner; an exception is passed to `owner.on_error` and goes no further
    run_within(owner, ...)    the same, as the last step of the current work, which can have the same owner
    later(callback)           the callback in the form in which it is registered for a later call
    detached(call, ...)       a call whose callbacks have no owner: one timer for the deadlines of many requests

A failing callback therefore never interrupts the code that polls, delivers or ticks; its exception reaches only the one
client that it concerns. Work without an owner runs unprotected, unless the process has set one (`set_background`):
broker processes do, simulations and tests do not, so that a bug there ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from barnabas.common.host import FaultHandler

P = ParamSpec("P")
T = TypeVar("T")


class Owner(Protocol):
    """The owner of a piece of work. If it is also `Named`, log lines name it."""

    def on_error(self, error: Exception) -> None:
        """Handles a failure of the work: sends an error response or closes the connection. Raises nothing."""


@runtime_checkable
class Named(Protocol):
    """An owner, or another worker, that can name its work for the log line about a long turn (`server.turns`)."""

    def turn_name(self) -> tuple[str, str]:
        """Returns the kind of the work that was served last, and its details."""


class _Turn:
    """The state of the one thread that runs continuations."""

    __slots__ = ("background", "owner")

    def __init__(self) -> None:
        self.owner: Owner | None = None
        #: The owner of work that no request has caused.
        self.background: Owner | None = None


_turn = _Turn()


class Background:
    """The owner of a broker's background work: failures are reported, and the broker continues."""

    __slots__ = ("_faults",)

    def __init__(self, faults: FaultHandler) -> None:
        self._faults = faults

    def on_error(self, error: Exception) -> None:
        self._faults.report(f"background work failed: {error!r}", error)


def set_background(owner: Owner | None) -> None:
    """Makes this the owner of all work without one; None removes it."""
    if _turn.owner is _turn.background:
        _turn.owner = owner
    _turn.background = owner


def owner() -> Owner | None:
    """Returns the owner of the current work."""
    return _turn.owner


def run(owner: Owner | None, work: Callable[..., T], *arguments: object) -> T | None:
    """Runs `work` for `owner` and returns its result, or None after a failure."""
    before = _turn.owner
    _turn.owner = owner
    try:
        return work(*arguments)
    except Exception as error:
        if owner is None:
            raise
        owner.on_error(error)
        return None
    finally:
        _turn.owner = before


def run_within(owner: Owner | None, work: Callable[..., object], *arguments: object) -> None:
    """Runs `work` for `owner` as the last step of the current work. If that has the same owner, a failure ends in its
    own `run`, so a second one is not needed.
    """
    if owner is _turn.owner:
        work(*arguments)
    else:
        run(owner, work, *arguments)


def later(callback: Callable[P, None]) -> Callable[P, None]:
    """Returns the callback for a later call: it runs for the owner of the current work and raises nothing."""
    owner = _turn.owner
    if owner is None:
        return callback
    continued: Any = partial(run, owner, callback)
    wrapped: Callable[P, None] = continued
    return wrapped


def plain(callback: object) -> tuple[object, Owner | None]:
    """Returns the callback that `later` was given, and its owner, to get their names."""
    owner: Owner | None = None
    while isinstance(callback, partial) and callback.func is run:
        owner, callback = callback.args[:2]
    return callback, owner


def detached(call: Callable[..., T], *arguments: object) -> T:
    """Returns the result of `call`, which registers callbacks without an owner."""
    before = _turn.owner
    _turn.owner = _turn.background
    try:
        return call(*arguments)
    finally:
        _turn.owner = before
