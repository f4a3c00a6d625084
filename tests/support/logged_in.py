"""A blocking connection to one node, of a user who has logged in, over TLS or not. Requests go to this node alone."""

from __future__ import annotations

import socket
import ssl
from typing import Final, TypeVar

from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.sasl.log_in_requests import log_in
from barnabas.protocol.sasl.logins import Login

M = TypeVar("M", bound=Message)
_TIMEOUT_S: Final = 20.0


class LoggedIn:
    """A connection. Raises LogInFailed if the node refuses the user."""

    def __init__(self, port: int, login: Login, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._count = 0
        steps = log_in(login, "a-nonce-of-the-test", lambda: 2)
        try:
            request, version = next(steps)
            while True:
                answer = self.ask(request, version)
                assert answer is not None, f"the connection of {login.username} ends in the log-in"
                request, version = steps.send(answer)
        except StopIteration:
            pass

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Message | None:
        """Sends a request. Returns the response; None if the connection ends instead."""
        answer = self.answer(request, version)
        if answer is None:
            return None
        key = type(request).API_KEY
        assert key is not None, "a request"
        position = 1 if response_header_version(key, version) else 0
        return codec.decode(response_class(key), version, answer, position)[0]

    def answer(self, request: Message, version: int) -> bytes | None:
        """Sends a request. Returns the bytes of the answer after its correlation id; None if the connection ends."""
        key = type(request).API_KEY
        assert key is not None, "a request"
        self._count += 1
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=self._count, client_id="test"
        )
        frame = codec.encode(header, request_header_version(key, version))
        codec.encode_into(request, version, frame)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        head = self._read(4)
        if len(head) < 4:
            return None
        return self._read(int.from_bytes(head, "big"))[4:]

    def _read(self, size: int) -> bytes:
        """Returns so many bytes, or fewer if the connection ends."""
        data = b""
        while len(data) < size and (piece := self._socket.recv(size - len(data))):
            data += piece
        return data

    def call(self, request: Message, version: int, kind: type[M]) -> M:
        answer = self.ask(request, version)
        assert isinstance(answer, kind), f"{answer}"
        return answer
