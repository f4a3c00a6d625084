"""A blocking connection to one broker: requests and their responses, in order.

Spark's tasks are plain synchronous processes, so a connection waits for only one thing at a time. One request can be
sent before the response to the last one is read, which is all the overlap that fetching needs (`send`, then `receive`).

A connection that failed cannot be used again: every network fault, including a malformed response, is an OSError, and
the owner drops it. A failure that no retry can repair (a refused login, an untrusted certificate) is RequestRefused.
Records in a response are views into its frame, which is never written again.
"""

from __future__ import annotations

import secrets
import socket
from typing import Final, TypeVar, cast

from barnabas.common.errors import DecodeError
from barnabas.protocol.client_session import ClientSession, LoginRefused, UnknownRequest, frame_size
from barnabas.protocol.message import Message
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.errors import RequestRefused
from barnabas.spark.security import secured

_SOFTWARE: Final = "barnabas-spark"
_RECEIVE_BUFFER_BYTES: Final = 1 << 20

M = TypeVar("M", bound=Message)


class Connection:
    """A connection that has passed ApiVersions and the login. Its constructor raises OSError or RequestRefused."""

    def __init__(self, address: tuple[str, int], settings: ClientSettings) -> None:
        self.address = address
        security = settings.security
        self._session = ClientSession(_SOFTWARE, settings.client_id, security.login, secrets.token_urlsafe(24))
        timeout_s = settings.request_timeout_ms / 1000
        self._socket = socket.create_connection(address, timeout=min(timeout_s, settings.connect_timeout_ms / 1000))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            self._socket = secured(self._socket, address, security.tls)
            self._shake_hands()
            self._socket.settimeout(timeout_s)
        except BaseException:
            self._socket.close()
            raise

    @property
    def waiting(self) -> int:
        """Returns the number of responses still to be received."""
        return self._session.waiting

    def version_of(self, request_class: type[Message], version_max: int | None = None) -> int:
        """Returns the highest version that both sides support. Raises RequestRefused if there is none."""
        try:
            return self._session.version_of(request_class, version_max)
        except UnknownRequest as error:
            raise RequestRefused(f"the broker at {self.shown} {error}") from error

    @property
    def shown(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def call(self, request: Message, answer: type[M], version_max: int | None = None) -> M:
        """Sends one request and returns its response. No other request can be in flight."""
        assert not self._session.waiting, "a response is still outstanding"
        self.send(request, version_max)
        return cast("M", self.receive())

    def send(self, request: Message, version_max: int | None = None) -> None:
        try:
            frame = self._session.request(request, version_max)
        except UnknownRequest as error:
            raise RequestRefused(f"the broker at {self.shown} {error}") from error
        self._socket.sendall(frame)

    def receive(self, timeout_ms: int | None = None) -> Message:
        """Returns the response to the oldest outstanding request. `timeout_ms` replaces the usual timeout for it."""
        try:
            if timeout_ms is None:
                return self._session.answer(self._frame())
            usual_s = self._socket.gettimeout()
            self._socket.settimeout(timeout_ms / 1000)
            frame = self._frame()
            self._socket.settimeout(usual_s)
            return self._session.answer(frame)
        except DecodeError as error:
            raise ConnectionError(f"{self.shown} sent a malformed response: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def _shake_hands(self) -> None:
        try:
            self._session.shake_hands(self._carry)
        except DecodeError as error:
            raise ConnectionError(f"{self.shown}: {error}") from error
        except LoginRefused as error:
            raise RequestRefused(f"the broker at {self.shown} {error}") from error

    def _carry(self, frame: bytearray) -> memoryview:
        self._socket.sendall(frame)
        return self._frame()

    def _frame(self) -> memoryview:
        return self._exactly(frame_size(self._exactly(4)))

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        got = 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if count == 0:
                hint = self._session.close_hint
                raise ConnectionResetError(f"{self.shown} has closed the connection{hint}")
            got += count
        return view
