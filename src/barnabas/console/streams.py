"""The streams of the pages: those that keep a connection, and those that take turns.

A browser opens six connections to a host (HTTP/1.1) for all its tabs, and a stream keeps one for as long as its tab is
seen. So the streams of one browser keep only some of them. A further stream is sent what there is to send, ends, and is
continued by the page's next request: what it shows is kept here in between. When something changes, one of those that
keep a connection tells its page, which tells the others that it is their turn.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.console.problems import Problem

#: The streams of the whole console, and those of one browser, which leave room for others.
STREAMS_MAX: Final = 100
BROWSER_MAX: Final = 50
#: The connections of one browser that its streams keep. The others are for requests, some of which take seconds.
KEPT_MAX: Final = 3
#: The time after which a page asks for the next turn of a stream if no other stream announces changes; and if one does,
#: for the case that its page does not pass them on.
PAUSE_MS: Final = 250
TOLD_PAUSE_MS: Final = 1_000
#: The time in which it must ask: after that, the stream begins again where the page was.
_WAIT_S: Final = 10.0
_TOKEN_BYTES: Final = 16


class Connection:
    """The connection of a stream of a browser about a cluster. `is_wanted` is set when a stream that cannot take turns
    needs it.
    """

    def __init__(self, browser: str, cluster: str, on_wanted: Callable[[], None] | None) -> None:
        self.browser = browser
        self.cluster = cluster
        self.is_wanted = False
        self._on_wanted = on_wanted

    @property
    def can_end(self) -> bool:
        return self._on_wanted is not None and not self.is_wanted

    def want(self) -> None:
        self.is_wanted = True
        if self._on_wanted is not None:
            self._on_wanted()


class _Left(NamedTuple):
    """A stream between two turns."""

    browser: str
    cluster: str
    stream: object
    timer: asyncio.TimerHandle


class Streams:
    """All streams. A browser has the name that `Visit.browser` returns; a visitor without one has as many connections
    as it opens.
    """

    def __init__(self) -> None:
        self._open: list[Connection] = []
        self._waiting: dict[str, _Left] = {}

    @property
    def open(self) -> int:
        """Returns the number of connections that streams keep."""
        return len(self._open)

    def check_room(self, browser: str, token: str = "") -> None:
        """Raises Problem if there are too many streams for another one; the one left by this name has its room."""
        if token in self._waiting:
            return
        if len(self._open) + len(self._waiting) >= STREAMS_MAX:
            raise Problem("rate", f"this console already has {STREAMS_MAX} live pages", retry_s=5)
        own = sum(each.browser == browser for each in self._open)
        own += sum(each.browser == browser for each in self._waiting.values())
        if browser and own >= BROWSER_MAX:
            raise Problem("rate", f"this browser already has {BROWSER_MAX} live pages", retry_s=5)

    def connect(self, browser: str, cluster: str, on_wanted: Callable[[], None]) -> Connection | None:
        """Returns a connection for a stream that can take turns, which is asked for that by `on_wanted`; None if the
        browser has none left for it.
        """
        if browser and len(self._of(browser)) >= KEPT_MAX:
            return None
        return self._opened(Connection(browser, cluster, on_wanted))

    def connect_always(self, browser: str) -> Connection:
        """Returns a connection for a stream that cannot take turns; another stream gives up its own if necessary."""
        others = self._of(browser) if browser else []
        if len(others) >= KEPT_MAX:
            first = next((each for each in others if each.can_end), None)
            if first is not None:
                first.want()
        return self._opened(Connection(browser, "", None))

    def close(self, connection: Connection) -> None:
        self._open.remove(connection)

    def tells(self, connection: Connection) -> bool:
        """Whether the stream of this connection tells others of its browser that something changed: the first one about
        a cluster does, if there are others that take turns.
        """
        key = connection.browser, connection.cluster
        is_first = self._teller(*key) is connection
        return is_first and any((each.browser, each.cluster) == key for each in self._waiting.values())

    def pause_ms(self, browser: str, cluster: str) -> int:
        """Returns the time after which a page asks for the next turn of a stream, if nobody tells it earlier."""
        return PAUSE_MS if self._teller(browser, cluster) is None else TOLD_PAUSE_MS

    def leave(self, browser: str, cluster: str, stream: object, on_late: Callable[[], None]) -> str:
        """Keeps a stream until its next turn. Returns the name by which that asks for it; `on_late` is called if it
        never comes.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)

        def forget() -> None:
            del self._waiting[token]
            on_late()

        timer = asyncio.get_running_loop().call_later(_WAIT_S, forget)
        self._waiting[token] = _Left(browser, cluster, stream, timer)
        return token

    def take(self, browser: str, token: str) -> object | None:
        """Returns the stream that this browser left by this name, once; None if there is none."""
        left = self._waiting.get(token)
        if left is None or left.browser != browser:
            return None
        left.timer.cancel()
        del self._waiting[token]
        return left.stream

    def _teller(self, browser: str, cluster: str) -> Connection | None:
        every = (each for each in self._of(browser) if browser and each.can_end and each.cluster == cluster)
        return next(every, None)

    def _of(self, browser: str) -> list[Connection]:
        return [each for each in self._open if each.browser == browser and not each.is_wanted]

    def _opened(self, connection: Connection) -> Connection:
        self._open.append(connection)
        return connection
