"""Requests that librdkafka lacks, over a separate connection: one request, one response, no pipelining."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Final, TypeVar

from barnabas.common.errors import DecodeError
from barnabas.embedded.failures import Failure
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.wire import skip_tagged_fields

M = TypeVar("M", bound=Message)

_TIMEOUT_S: Final = 30.0
_SIZE: Final = struct.Struct(">i")


class Wire:
    """A plain-text connection to one broker. Raises Failure if there is no connection, or no answer within the time."""

    def __init__(self, host: str, port: int, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._where = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise Failure(f"no connection to {self._where} ({error.strerror or error})") from error
        self._correlation_id = 0

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
