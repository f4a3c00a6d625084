"""A connection to one broker for requests and responses. It connects when there is a request, and again after any
error; TLS and SASL are configured by the properties of `protocol.client_security`.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, Generic, NamedTuple, TypeVar, cast

from barnabas.common.errors import DecodeError
from barnabas.protocol.client_security import client_security
from barnabas.protocol.client_session import ClientSession, LoginRefused, UnknownRequest, frame_size
from barnabas.protocol.message import Message
from barnabas.protocol.sasl.logins import Login
from barnabas.tls.contexts import client_context

M = TypeVar("M", bound=Message)
Address = tuple[str, int]

_SOFTWARE: Final = "barnabas-monitor"
#: The correlation id, in which equal answers differ.
_ID_BYTES: Final = 4
_DIGEST_BYTES: Final = 16


class NoAnswer(Exception):
    """The error for a broker that could not be queried; the text gives the reason."""


class Security(NamedTuple):
    """The security settings of a client's properties."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """Parses the properties. Raises ConfigError for unsupported values, OSError for files that cannot be read."""
        security = client_security(properties)
        return cls(None if security.tls is None else client_context(security.tls), security.login)


class _Open(NamedTuple):
    session: ClientSession
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Repeated(Generic[M]):
    """A request that is sent again and again, mostly to one broker. `build` returns it. It is encoded once for each
    connection, and a response with the bytes of the last one is not decoded: most responses about a large cluster are
    the same, and decoding takes longer than all other work on them.
    """

    def __init__(self, build: Callable[[], Message], response: type[M]) -> None:
        self.response = response
        #: A digest of the last response, which takes less memory than its frame.
        self.digest: bytes | None = None
        self._build = build
        self._session: ClientSession | None = None
        self._frame = b""

    def framed(self, session: ClientSession) -> bytearray:
        """Returns the frame to send. Raises UnknownRequest."""
        if session is self._session:
            return session.request_again(self._frame)
        frame = session.request(self._build())
        self._session, self._frame = session, bytes(frame)
        return frame

    def forget(self) -> None:
        """Makes the next response one that is decoded."""
        self.digest = None

    def is_known(self, frame: bytes) -> bool:
        """Whether the frame of a response is that of the last one. The next is compared with this one."""
        before = self.digest
        self.digest = blake2b(memoryview(frame)[_ID_BYTES:], digest_size=_DIGEST_BYTES).digest()
        return self.digest == before


class BrokerConnection:
    """Sends one request at a time. After `call` raised NoAnswer, the next call connects again."""

    def __init__(self, address: Address, security: Security, *, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._security = security
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._open: _Open | None = None
        self._known: ClientSession | None = None

    async def call(
        self, request: Message, response: type[M], *, version_max: int | None = None, timeout_s: float | None = None
    ) -> M:
        """Returns the response, in the highest version that both sides support. Raises NoAnswer."""
        found = await self._called(lambda session: session.request(request, version_max), timeout_s, lambda _: False)
        return cast("M", found)

    async def call_again(self, repeated: Repeated[M]) -> M | None:
        """Returns the response; None if it is the same as the last one. Raises NoAnswer."""
        try:
            found = await self._called(repeated.framed, None, repeated.is_known)
        except BaseException:
            repeated.forget()
            raise
        return cast("M | None", found)

    async def _called(
        self,
        framed: Callable[[ClientSession], bytearray],
        timeout_s: float | None,
        is_known: Callable[[bytes], bool],
    ) -> Message | None:
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s or self._timeout_s):
                    if self._open is not None:
                        try:
                            return await self._exchange(self._open, framed, is_known)
                        except (ConnectionError, EOFError):
                            self.close()  # The broker may have closed the connection long ago, and accept a new one.
                    self._open = await self._dial()
                    return await self._exchange(self._open, framed, is_known)
            except UnknownRequest as error:
                raise NoAnswer(f"it {error}") from error  # nothing was sent
            except (OSError, EOFError, DecodeError, LoginRefused, TimeoutError) as error:
                hint = "" if self._known is None else self._known.close_hint
                self.close()
                raise NoAnswer(_reason(error, hint)) from error
            except BaseException:
                self.close()
                raise

    @property
    def is_ended(self) -> bool:
        """Whether the broker has closed the connection since the last call."""
        return self._open is not None and self._open.reader.at_eof()

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.writer.close()

    def knows(self, request: type[Message]) -> bool:
        """Whether the broker supports this API. This is known after the first response."""
        return self._known is not None and self._known.knows(request)

    def version_of(self, request: type[Message]) -> int:
        """Returns the version in which a request would be sent; -1 if the broker does not support it, or has not
        answered yet.
        """
        try:
            return -1 if self._known is None else self._known.version_of(request)
        except UnknownRequest:
            return -1

    async def _dial(self) -> _Open:
        host, port = self.address
        tls, login = self._security
        reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=host if tls else None)
        session = self._known = ClientSession(_SOFTWARE, self._client_id, login, secrets.token_urlsafe(24))
        opened = _Open(session, reader, writer)
        steps = session.handshake()
        try:
            frame = next(steps)
            while True:
                frame = steps.send(await self._carry(opened, frame))
        except StopIteration:
            return opened
        except BaseException:
            writer.close()
            raise

    async def _exchange(
        self, opened: _Open, framed: Callable[[ClientSession], bytearray], is_known: Callable[[bytes], bool]
    ) -> Message | None:
        frame = await self._carry(opened, framed(opened.session))
        if is_known(frame):
            opened.session.skip(frame)
            return None
        return opened.session.answer(frame)

    async def _carry(self, opened: _Open, frame: bytearray) -> bytes:
        """Sends the frame of a request, and returns the body of the response frame."""
        opened.writer.write(frame)
        await opened.writer.drain()
        return await opened.reader.readexactly(frame_size(await opened.reader.readexactly(4)))


def _reason(error: BaseException, hint: str) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return f"it closed the connection{hint}"
    if isinstance(error, LoginRefused):
        return f"it {error}"
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
