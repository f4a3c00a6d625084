"""One blocking connection to one broker: requests out, their answers in order.

Spark's tasks are plain synchronous processes, so nothing here waits for more than one thing at a time; one request may
be sent before the answer of the last is read, which is all the overlap that fetching needs (`send`, then `receive`).

A connection that failed is of no further use: every network fault, a malformed answer too, is an OSError, and the
owner drops it. What no retry mends (a log-in that is refused, a certificate that is not trusted) is RequestRefused.
Records in an answer are views into its own frame, which nobody writes to again.
"""

from __future__ import annotations

import secrets
import socket
from typing import Final, TypeVar, cast

from barnabas.common.errors import DecodeError
from barnabas.protocol.client_session import ClientSession, LoginRefused, UnknownRequest, frame_size
from barnabas.protocol.message import Message
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.faults import RequestRefused
from barnabas.spark.security import secured

_SOFTWARE: Final = "barnabas-spark"
_RECEIVE_BUFFER_BYTES: Final = 1 << 20

M = TypeVar("M", bound=Message)


class Connection:
    """Connected, past ApiVersions and the log-in once constructed. OSError or RequestRefused where that fails."""

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
        """How many answers are still to be received."""
        return self._session.waiting

    def version_of(self, request_class: type[Message], version_max: int | None = None) -> int:
        """The highest version that both sides know. RequestRefused if there is none."""
        try:
            return self._session.version_of(request_class, version_max)
        except UnknownRequest as error:
            raise RequestRefused(f"the broker at {self.shown} {error}") from error

    @property
    def shown(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def ask(self, request: Message, answer: type[M], version_max: int | None = None) -> M:
        """The answer to one request; nothing else may be in flight."""
        assert not self._session.waiting, "an answer is still to be received"
        self.send(request, version_max)
        return cast("M", self.receive())

    def send(self, request: Message, version_max: int | None = None) -> None:
        try:
            frame = self._session.request(request, version_max)
        except UnknownRequest as error:
            raise RequestRefused(f"the broker at {self.shown} {error}") from error
        self._socket.sendall(frame)

    def receive(self, timeout_ms: int | None = None) -> Message:
        """The answer to the request that was sent first. `timeout_ms` replaces the usual one for this answer."""
        try:
            if timeout_ms is None:
                return self._session.answer(self._frame())
            usual_s = self._socket.gettimeout()
            self._socket.settimeout(timeout_ms / 1000)
            frame = self._frame()
            self._socket.settimeout(usual_s)
            return self._session.answer(frame)
        except DecodeError as error:
            raise ConnectionError(f"{self.shown} gives a malformed answer: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def _shake_hands(self) -> None:
        steps = self._session.handshake()
        try:
            frame = next(steps)
            while True:
                self._socket.sendall(frame)
                frame = steps.send(self._frame())
        except StopIteration:
            return
        except DecodeError as error:
            raise ConnectionError(f"{self.shown}: {error}") from error
        except LoginRefused as error:
            raise RequestRefused(f"the broker at {self.shown} {error}") from error

    def _frame(self) -> memoryview:
        return self._exactly(frame_size(self._exactly(4)))

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        got = 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if count == 0:
                hint = self._session.hang_up_hint
                raise ConnectionResetError(f"{self.shown} has closed the connection{hint}")
            got += count
        return view
