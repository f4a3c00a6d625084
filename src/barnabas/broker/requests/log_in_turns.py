"""The turns of clients that log in: only a few of their requests are served in one turn of the event loop.

After a restart a thousand clients log in at the same time, with four requests each. A loop that finds all of them
readable would serve a request of each before it looks at other sockets again: 0.1 s in which a producer gets no
answer. So the first requests of a turn are served immediately, and the other clients wait for later turns, in the order
in which they came. The loop looks at all its sockets in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

#: The number of requests of one turn; each takes about 70 µs.
_PER_TURN: Final = 16


class Waiting(Protocol):
    """A connection with a request that waits."""

    def resume(self) -> None:
        """Serves the request. Does nothing if the connection is closed."""


class LogInTurns:
    """The queue of one broker."""

    __slots__ = ("_call_soon", "_is_scheduled", "_left", "_waiting")

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Waiting] = deque()
        #: The number of requests that can still be served in this turn.
        self._left = _PER_TURN
        self._is_scheduled = False

    def admit(self, connection: Waiting) -> bool:
        """Returns whether a request of this connection can be served now; otherwise `resume` is called later."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._begin)
        if self._left and not self._waiting:
            self._left -= 1
            return True
        self._waiting.append(connection)
        return False

    def _begin(self) -> None:
        """Begins the next turn."""
        waiting = self._waiting
        count = min(_PER_TURN, len(waiting))
        self._left = _PER_TURN - count
        self._is_scheduled = count > 0
        if count:
            self._call_soon(self._begin)
        for _ in range(count):
            waiting.popleft().resume()
