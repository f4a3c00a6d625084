"""The streams of the pages: those that keep a connection, and those that take turns.

A browser opens six connections to a host (HTTP/1.1) for all its tabs, and a stream keeps one for as long as its tab is
seen. So the streams of one browser keep only some of them. A further stream is sent what there is to send, ends, and is
continued by the page's next request: what it shows is kept here in between.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from barnabas.console.problems import Problem
from barnabas.console.security.sessions import Session

#: The streams of the whole console, and those of one browser, which leave room for others.
STREAMS_MAX: Final = 100
BROWSER_MAX: Final = 50
#: The connections of one browser that its streams keep. The others are for requests, some of which take seconds.
KEPT_MAX: Final = 3
#: The time after which a page asks for the next turn of a stream.
PAUSE_MS: Final = 250
#: The time in which it must ask: after that, the stream begins again where the page was.
_WAIT_S: Final = 10.0
_TOKEN_BYTES: Final = 16


class Connection:
    """The connection of a stream. `is_wanted` is set when a stream that cannot take turns needs it."""

    def __init__(self, browser: str, on_wanted: Callable[[], None] | None) -> None:
        self.browser = browser
        self.is_wanted = False
        self._on_wanted = on_wanted

    @property
    def can_end(self) -> bool:
        return self._on_wanted is not None and not self.is_wanted

    def want(self) -> None:
        self.is_wanted = True
        if self._on_wanted is not None:
            self._on_wanted()


class Streams:
    """All streams. A browser is known by its session; a visitor without one has as many connections as it opens."""

    def __init__(self) -> None:
        self._open: list[Connection] = []
        self._waiting: dict[str, tuple[str, object, asyncio.TimerHandle]] = {}

    @property
    def open(self) -> int:
        """Returns the number of connections that streams keep."""
        return len(self._open)

    def check_room(self, session: Session | None, token: str = "") -> None:
        """Raises Problem if there are too many streams for another one; the one left by this name has its room."""
        if token in self._waiting:
            return
        if len(self._open) + len(self._waiting) >= STREAMS_MAX:
            raise Problem("rate", f"this console already has {STREAMS_MAX} live pages", retry_s=5)
        browser = _browser(session)
        own = [*(each.browser for each in self._open), *(each for each, _, _ in self._waiting.values())]
        if browser and own.count(browser) >= BROWSER_MAX:
            raise Problem("rate", f"this browser already has {BROWSER_MAX} live pages", retry_s=5)

    def connect(self, session: Session | None, on_wanted: Callable[[], None]) -> Connection | None:
        """Returns a connection for a stream that can take turns, which is asked for that by `on_wanted`; None if the
        browser has none left for it.
        """
        browser = _browser(session)
        if browser and len(self._of(browser)) >= KEPT_MAX:
            return None
        return self._opened(Connection(browser, on_wanted))

    def connect_always(self, session: Session | None) -> Connection:
        """Returns a connection for a stream that cannot take turns; another stream gives up its own if necessary."""
        browser = _browser(session)
        others = self._of(browser) if browser else []
        if len(others) >= KEPT_MAX:
            first = next((each for each in others if each.can_end), None)
            if first is not None:
                first.want()
        return self._opened(Connection(browser, None))

    def close(self, connection: Connection) -> None:
        self._open.remove(connection)

    def leave(self, session: Session | None, stream: object, on_late: Callable[[], None]) -> str:
        """Keeps a stream until its next turn. Returns the name by which that asks for it; `on_late` is called if it
        never comes.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)

        def forget() -> None:
            del self._waiting[token]
            on_late()

        timer = asyncio.get_running_loop().call_later(_WAIT_S, forget)
        self._waiting[token] = (_browser(session), stream, timer)
        return token

    def take(self, session: Session | None, token: str) -> object | None:
        """Returns the stream that this session left by this name, once; None if there is none."""
        browser, stream, timer = self._waiting.get(token, ("", None, None))
        if timer is None or browser != _browser(session):
            return None
        timer.cancel()
        del self._waiting[token]
        return stream

    def _of(self, browser: str) -> list[Connection]:
        return [each for each in self._open if each.browser == browser and not each.is_wanted]

    def _opened(self, connection: Connection) -> Connection:
        self._open.append(connection)
        return connection


def _browser(session: Session | None) -> str:
    return "" if session is None else session.token
