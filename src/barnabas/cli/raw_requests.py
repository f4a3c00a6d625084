"""Requests that librdkafka lacks, over a separate connection: one request, one response, no pipelining."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Final, TypeVar

from barnabas.cli.contexts import choice
from barnabas.common.errors import DecodeError
from barnabas.embedded.failures import Failure
from barnabas.protocol import codec
from barnabas.protocol.client_security import Tls, client_security
from barnabas.protocol.client_session import ClientSession, LoginRefused, frame_size
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.sasl.logins import Login
from barnabas.protocol.wire import skip_tagged_fields

M = TypeVar("M", bound=Message)

_TIMEOUT_S: Final = 30.0
_SIZE: Final = struct.Struct(">i")


class Wire:
    """A connection to one broker, with the TLS and log-in of the command's client settings. Raises Failure if there is
    no connection, or no answer within the time.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._where = f"{host}:{port}"
        security = client_security(choice.client_settings())
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
            if security.tls is not None:
                self._socket = _over_tls(self._socket, security.tls, host)
        except OSError as error:
            raise Failure(f"no connection to {self._where} ({error.strerror or error})") from error
        if security.login is not None:
            self._log_in(security.login)
        self._correlation_id = 0

    def _log_in(self, login: Login) -> None:
        try:
            ClientSession("barnabas", "barnabas", login, secrets.token_urlsafe(18)).shake_hands(self._carry)
        except (OSError, DecodeError) as error:
            raise Failure(f"{self._where} did not answer the login: {error}") from error
        except LoginRefused as error:
            raise Failure(f"{self._where} {error}") from error

    def _carry(self, frame: bytearray) -> bytes:
        self._socket.sendall(frame)
        return self._read(frame_size(self._read(4)))

    @classmethod
    def to_any(cls, addresses: Iterable[tuple[str, int]]) -> Wire:
        """Connects to the first available broker of `addresses`, some of which may have stopped since. If none is
        available, raises the Failure of the last attempt.
        """
        failure = Failure("there is no broker to connect to")
        for host, port in addresses:
            try:
                return cls(host, port)
            except Failure as error:
                failure = error
        raise failure

    def call(self, request: Message, version: int, expected: type[M]) -> M:
        """Returns the response. Raises Failure if there is none, or if it cannot be decoded."""
        key = type(request).API_KEY
        assert key is not None
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=self._correlation_id, client_id="barnabas"
        )
        frame = codec.encode(header, request_header_version(key, version))
        codec.encode_into(request, version, frame)
        try:
            self._socket.sendall(_SIZE.pack(len(frame)) + frame)
            (size,) = _SIZE.unpack(self._read(4))
            answer = self._read(size)
            position = 4
            if response_header_version(key, version) == 1:
                position = skip_tagged_fields(answer, position)
            return codec.decode(expected, version, answer, position)[0]
        except (OSError, DecodeError) as error:
            raise Failure(f"{self._where} did not answer {type(request).NAME}: {error}") from error

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("it closed the connection")
            data += chunk
        return bytes(data)

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def _over_tls(plain: socket.socket, tls: Tls, host: str) -> socket.socket:
    # Only a cluster with TLS needs the module, which takes 30 ms to load.
    from barnabas.tls.contexts import client_context

    return client_context(tls).wrap_socket(plain, server_hostname=host)
