"""The connections of clients: one that sends no whole request in time, or reads no answer, ends.

The server has a limit of connections. Without these limits of time, so many clients that do nothing would keep all
others out. What is refused here, before it reaches the gate, has the headers of the gate's answers.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from barnabas.console.problems import Problem
from barnabas.console.security.gate import HEADERS

#: The time for the head of a request, from its first byte or from the beginning of the connection. The body has a limit
#: of its own (`security.gate`).
_HEAD_S: Final = 10.0
#: A client that reads less than this within the time does not read.
_STALLED_S: Final = 30.0
_READ_LEAST: Final = 32 * 1024
_INT: Final = struct.Struct("i")


class LimitedConnection(H11Protocol):
    """A connection of the server with these limits."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            self.app = _full
        # The server's own refusal of too many connections has no headers of the gate.
        self.limit_concurrency = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head_timer()
        self._end_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Bytes that trickle in do not move the limit.
        self._await_head()

    def send_400_response(self, msg: str) -> None:
        named = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(msg)), "connection": "close"}
        lines = [
            "HTTP/1.1 400 Bad Request",
            *(f"{name}: {value}" for name, value in (named | HEADERS).items()),
            "",
            msg,
        ]
        self.transport.write("\r\n".join(lines).encode("ascii"))
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The time between two requests has a limit of the server.
        self._end_head_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread_bytes()
        self._read_timer = self._read_timer or self.loop.call_later(_STALLED_S, self._check_reader)

    def resume_writing(self) -> None:
        self._end_read_timer()
        super().resume_writing()

    def _await_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _check_reader(self) -> None:
        before, self._unread = self._unread, self._unread_bytes()
        if before - self._unread < _READ_LEAST:
            self.transport.abort()
        else:
            self._read_timer = self.loop.call_later(_STALLED_S, self._check_reader)

    def _unread_bytes(self) -> int:
        """Returns what waits here and, as far as the system says so, in its buffer: that can have room for megabytes,
        and takes more only after many of them were read.
        """
        waiting = self.transport.get_write_buffer_size()
        try:
            found = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(_INT.size))
        except (AttributeError, OSError):
            return waiting
        return waiting + int(_INT.unpack(found)[0])

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


async def _full(_scope: Any, _receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    """Answers a request of a connection beyond the limit."""
    body = orjson.dumps(Problem("unreachable", "this console has too many connections").to_json())
    named = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **HEADERS}
    headers = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
