"""The live stream: one for each visible page, with what changed on its screen (Server-Sent Events).

    hello    the stream began
    data     the whole answer of the screen's route
    cells    the partitions of the map that changed
    events   new events of the time line
    stale    the page must fetch its data again
    status   which brokers are silent, and since when
    reload   the page must fetch everything again
    turn     the browser has too many streams: the page asks again after a pause, and this one continues
    others   something changed: pages of this browser whose streams take turns ask now
    bye      the session ended

Changes are coalesced: a slow page gets the current state, not each state that it missed. A broker that comes or goes is
not delayed by that. No stream sends requests to a broker, so none waits for a silent one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from barnabas.console.live_screens import SCREENS, LiveScreen, Message, OtherScreen, position_of
from barnabas.console.screens import to_json
from barnabas.console.security.rights import Role
from barnabas.console.security.scope import Scope
from barnabas.console.visit import Handler, Visit
from barnabas.console.watched import News

#: The shortest pause between two messages about changes of states, and about sizes and offsets alone.
PAUSE_S: Final = 0.25
VOLUME_PAUSE_S: Final = 1.0
#: The shortest pause between two turns of a stream.
SOON_MS: Final = 50
#: The pause after which an open stream says that it is alive.
_COMMENT_S: Final = 10.0
#: The pause between two reports of ages, while a broker is silent.
_AGES_S: Final = 5.0


@dataclass(slots=True)
class _Stream:
    """The stream of one page, in one answer or in several turns."""

    screen: LiveScreen
    scope: Scope
    status: _Status
    after: str

    def first(self) -> Iterator[Message]:
        """Yields the messages with which the stream begins."""
        cluster = self.screen.cluster
        yield Message("hello", {"version": cluster.table.version, "boot": cluster.boot})
        position = position_of(self.after, cluster.boot)
        if self.after and position is None:
            yield Message("reload", {"reason": "the page is of an earlier start of the console"})
        yield from self.screen.begin(position)


async def live(visit: Visit) -> Response:
    turn = visit.parameters.text("turn", "")
    visit.console.streams.check_room(visit.browser, turn)
    screen = SCREENS.get(visit.parameters.text("screen"), OtherScreen)(visit.live, visit.parameters)
    after = visit.request.headers.get("last-event-id") or visit.parameters.text("after", "")
    stream = _Stream(screen, visit.scope, _Status(screen), after)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_sent(visit, stream, turn), media_type="text/event-stream", headers=headers)


async def _sent(visit: Visit, new: _Stream, turn: str) -> AsyncIterator[bytes]:
    """Yields the messages of a stream: of the one that takes this turn, otherwise of a new one."""
    console, left = visit.console, visit.console.streams.take(visit.browser, turn)
    stream = left if isinstance(left, _Stream) else new
    screen = stream.screen
    news = screen.watched.news()
    streams, cluster = console.streams, screen.watched.name
    connection = streams.connect(visit.browser, cluster, news.hurry)
    is_left = has_news = False
    try:
        if stream is new:
            for message in stream.first():
                yield _event(message, screen)
        while not console.closing.is_set():
            if not may_stay(visit, stream.scope):
                yield _event(Message("bye", {"reason": "the session ended"}), screen)
                return
            if has_news and connection is not None and streams.tells(connection):
                yield _event(Message("others", {"cluster": cluster}), screen)
            news.clear()
            screen.screens.follow()
            for message in (*stream.status.news(), *screen.news()):
                yield _event(message, screen)
            if connection is None or connection.is_wanted:
                # A change meanwhile was announced while this stream was not among those that wait.
                pause_ms = SOON_MS if news.is_set() else streams.pause_ms(visit.browser, cluster)
                token = streams.leave(visit.browser, cluster, stream, screen.end)
                is_left = True
                yield _event(Message("turn", {"turn": token, "pause_ms": pause_ms, "cluster": cluster}), screen)
                return
            has_news = await _wait(news, console.closing, screen.pause_s)
            if not has_news:
                yield b":\n\n"
        yield _event(Message("bye", {"reason": "the console stops"}), screen)
    finally:
        if connection is not None:
            streams.close(connection)
        screen.watched.ignore(news)
        if not is_left:
            screen.end()


async def _wait(news: News, closing: asyncio.Event, pause_s: float) -> bool:
    """Waits for news, at most until a page would think that the stream is dead. Returns False without news."""
    if not closing.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(news.urgent.wait(), pause_s)
    news.urgent.clear()
    has_news = news.is_set()
    if not has_news:
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), min(_COMMENT_S, _AGES_S))
            has_news = True
    news.clear()
    return has_news


def may_stay(visit: Visit, scope: Scope) -> bool:
    """Whether a stream that began with this scope can continue."""
    console, session = visit.console, visit.session
    if session is None:
        return console.users is None
    if console.scope_of(session) != scope:
        return False
    return console.is_current(session) and console.role_of(session) >= Role.VIEWER


class _Status:
    """The report about brokers: sent whenever it changes, and regularly while a broker is silent."""

    def __init__(self, screen: LiveScreen) -> None:
        self._cluster = screen.cluster
        self._shown: tuple[Any, ...] | None = None
        self._shown_ms = 0

    def news(self) -> list[Message]:
        cluster = self._cluster
        silent, now_ms = cluster.silent(), cluster.clock_ms()
        brokers = tuple((each["broker"], each["reason"]) for each in silent)
        key = (cluster.problem, brokers, cluster.table.controller)
        if key == self._shown and not (silent and now_ms - self._shown_ms >= _AGES_S * 1000):
            return []
        self._shown, self._shown_ms = key, now_ms
        shown = {
            "problem": cluster.problem,
            "silent": silent,
            "known_ms": cluster.known_ms,
            "controller": cluster.table.controller,
            "version": cluster.table.version,
            "now_ms": now_ms,
        }
        return [Message("status", shown)]


def _event(message: Message, screen: LiveScreen) -> bytes:
    position = f"{screen.cluster.boot}.{screen.version}.{screen.event_id}"
    body = message.data if isinstance(message.data, bytes) else to_json(message.data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (position.encode(), message.event.encode(), body)


HANDLERS: Final[dict[str, Handler]] = {"live": live}
