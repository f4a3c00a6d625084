"""Requests of this node to web servers (`common.host.Web`): the key sets and tokens of an identity provider.

Each request has a thread of its own. A peer can be slow in ways that no timeout of a socket ends, a byte at a time, so
the loop ends the connection of a request that takes too long. The thread is a daemon: a name server that does not
answer does not delay the process's exit. At most `_THREADS_MAX` requests are in progress; further ones fail.
Redirects are not followed: only URLs that the configuration allows are requested.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from barnabas.common.continuations import later
from barnabas.common.host import WebRequest
from barnabas.server.turns import Turns

_THREADS_MAX: Final = 16
_PIECE_BYTES: Final = 16_384

Done = Callable[[bytes | None, OSError | None], None]


class WebError(OSError):
    """The error for a response that is not the requested document."""


class _Exchange:
    """One request. Only its first result counts."""

    def __init__(self, client: WebClient, request: WebRequest, done: Done) -> None:
        self._client = client
        self._request = request
        self._done: Done | None = later(done)
        #: The socket, once it is connected.
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Fetches the document. It runs in a thread."""
        content: bytes | None = None
        error: OSError | None = None
        try:
            # The connection reads the certificates of the system, which would hold up the loop.
            connection = _connection(self._request)
            connection.connect()
            self._socket = connection.sock
            content = _fetch(connection, self._request)
        except OSError as raised:
            error = raised
        except (HTTPException, ValueError) as raised:
            error = WebError(f"no HTTP response: {type(raised).__name__}")
        self._client.report(self, content, error)

    def give_up(self) -> None:
        """Ends the request without a response, and its connection, which wakes the thread."""
        self.end(None, TimeoutError("no answer in time"))
        found = self._socket
        if found is not None:
            with suppress(OSError):
                socket.socket.shutdown(found, socket.SHUT_RDWR)

    def end(self, content: bytes | None, error: OSError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(content, error)


class WebClient:
    """The requests of one node. The loop's thread calls all methods but `report`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self._turns = turns
        self._threads = 0

    def fetch(self, request: WebRequest, done: Done) -> None:
        exchange = _Exchange(self, request, done)
        if self._threads >= _THREADS_MAX:
            self._loop.call_soon(self._turns.run, lambda: exchange.end(None, WebError("too many requests wait")))
            return
        self._threads += 1
        threading.Thread(target=exchange.run, name="barnabas-web", daemon=True).start()
        self._loop.call_later(request.timeout_ms / 1_000, self._turns.run, exchange.give_up)

    def report(self, exchange: _Exchange, content: bytes | None, error: OSError | None) -> None:
        """Delivers a result. It is called in the thread of the request."""
        try:
            self._loop.call_soon_threadsafe(self._on_result, exchange, content, error)
        except RuntimeError:
            return  # The loop has ended with the node.

    def _on_result(self, exchange: _Exchange, content: bytes | None, error: OSError | None) -> None:
        self._threads -= 1
        self._turns.run(lambda: exchange.end(content, error))


def _connection(request: WebRequest) -> HTTPConnection:
    url, timeout_s = urlsplit(request.url), request.timeout_ms / 1_000
    assert url.hostname is not None, "the configuration is checked"
    if url.scheme == "https":
        # The connection trusts the certificates of the system, or those of the file that SSL_CERT_FILE names.
        return HTTPSConnection(url.hostname, url.port, timeout=timeout_s)
    return HTTPConnection(url.hostname, url.port, timeout=timeout_s)


def _fetch(connection: HTTPConnection, request: WebRequest) -> bytes:
    """Returns the document of a request. Raises OSError and HTTPException."""
    url = urlsplit(request.url)
    try:
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Accept": "application/json", "Connection": "close", **dict(request.headers)}
        connection.request("GET" if request.content is None else "POST", target, request.content, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise WebError(f"it answers with status {response.status}")
        return _read(response, request.bytes_max)
    finally:
        connection.close()


def _read(response: HTTPResponse, bytes_max: int) -> bytes:
    found = bytearray()
    while piece := response.read1(_PIECE_BYTES):
        found += piece
        if len(found) > bytes_max:
            raise WebError(f"its document has more than {bytes_max} bytes")
    if response.length:
        raise WebError("its document is cut off")
    return bytes(found)
