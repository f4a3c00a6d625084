"""A connection of a client, without I/O: the bytes to send, and the meaning of the responses.

The host, blocking or not, dials, drives the handshake, and from then on transports frames:

    handshake()       yields frames to send; the body of each response frame is sent into the generator:
                      ApiVersions (KIP-511), then SaslHandshake and SaslAuthenticate (KIP-152) if there is a login
    request(...)      returns a frame to send, in the highest version that both sides support
    frame_size(...)   returns the size of a response from the 4 bytes before it
    answer(...)       returns the message in a received frame; responses come in the order of the requests

Records in a response are views into its frame. After any exception the connection cannot be used any more, except after
UnknownRequest: then nothing was sent.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from barnabas import __version__
from barnabas.common.errors import DecodeError, EncodeError, ErrorCode
from barnabas.common.host import Buffer
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.sasl import logins
from barnabas.protocol.sasl.log_in_requests import LogInFailed, log_in
from barnabas.protocol.wire import skip_tagged_fields

_HEADER: Final = struct.Struct(">ihhi")
#: Every broker since Kafka 2.4 supports this version; an older one answers in version 0 and lists its versions.
_FIRST_REQUESTED_VERSION: Final = 3
#: A longer response means that the peer uses another protocol.
_FRAME_BYTES_MAX: Final = 1 << 30
_TLS_ALERT: Final = b"\x15\x03"


class UnknownRequest(Exception):
    """The error for a request that the broker does not support, or not in the required version."""


class LoginRefused(Exception):
    """The error for a login that the broker refuses, or for a broker with a wrong identity. A retry does not help."""


def frame_size(prefix: Buffer) -> int:
    """Returns the size of the frame after this 4-byte prefix. Raises DecodeError if it is not a frame of Kafka."""
    size = int.from_bytes(prefix, "big", signed=True)
    if bytes(prefix[:2]) == _TLS_ALERT:
        raise DecodeError("it does not speak Kafka's protocol: this is a listener with TLS")
    if not 4 <= size <= _FRAME_BYTES_MAX:
        raise DecodeError(f"it does not speak Kafka's protocol: a frame of {size} bytes; is this a Kafka listener?")
    return size


class ClientSession:
    """A session. `nonce`: the random text for SCRAM; no two sessions have the same."""

    def __init__(self, software: str, client_id: str, login: logins.Login | None = None, nonce: str = "") -> None:
        assert login is None or nonce, "a login needs a nonce"
        self._software = software
        self._client_id = client_id.encode()
        self._login = login
        self._nonce = nonce
        self._in_flight: deque[tuple[int, int, int]] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._is_open = False
        self._is_proven = False

    @property
    def waiting(self) -> int:
        """Returns the number of outstanding responses."""
        return len(self._in_flight)

    @property
    def close_hint(self) -> str:
        """Returns the likely reason for an early close by the peer: its listener requires TLS or SASL."""
        if self._is_proven or self._login is not None:
            return ""
        return " at the first request; does its listener want SASL?" if self._is_open else "; does it want TLS?"

    def knows(self, request_class: type[Message]) -> bool:
        """Returns whether the broker supports any version of this API."""
        return request_class.API_KEY in self._versions

    def version_of(self, request_class: type[Message], version_max: int | None = None) -> int:
        """Returns the highest version of this API that both sides support. Raises UnknownRequest if there is none."""
        assert request_class.API_KEY is not None, "only requests are sent"
        low, high = self._versions.get(request_class.API_KEY, (0, -1))
        own_low, own_high = request_class.VERSIONS
        high = min(high, own_high if version_max is None else min(own_high, version_max))
        if high < max(low, own_low):
            raise UnknownRequest(f"does not support {request_class.NAME} in a version that this client can use")
        return high

    def request(self, request: Message, version_max: int | None = None) -> bytearray:
        """Encodes a request and returns the frame to send. Raises UnknownRequest."""
        assert self._is_open, "the handshake comes first"
        try:
            return self._framed(request, self.version_of(type(request), version_max))
        except EncodeError as error:
            raise UnknownRequest(f"is too old: {error}") from error

    def request_again(self, frame: Buffer) -> bytearray:
        """Returns the frame of an earlier request of this session, to send it again."""
        assert self._is_open, "the handshake comes first"
        found = bytearray(frame)
        _, api_key, version, _ = _HEADER.unpack_from(found)
        self._sent(found, api_key, version)
        return found

    def answer(self, frame: Buffer) -> Message:
        """Returns the response to the oldest outstanding request, from the body of its frame. Raises DecodeError."""
        api_key, version, position = self._answered(frame)
        if response_header_version(api_key, version) == 1:
            position = skip_tagged_fields(frame, position)
        found = codec.decode(response_class(api_key), version, frame, position)[0]
        self._is_proven = self._is_open
        return found

    def skip(self, frame: Buffer) -> None:
        """Accepts the response to the oldest outstanding request without decoding it. Raises DecodeError."""
        self._answered(frame)
        self._is_proven = self._is_open

    # -- the handshake

    def handshake(self) -> Generator[bytearray, Buffer, None]:
        """Yields the frames of the handshake. Raises DecodeError and LoginRefused."""
        versions = yield from self._request_versions()
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}
        if self._login is not None:
            yield from self._log_in(self._login)
        self._is_open = True

    def shake_hands(self, carry: Callable[[bytearray], Buffer]) -> None:
        """Drives the handshake of a blocking client. `carry` sends a frame and returns the body of the response frame.
        Raises DecodeError, LoginRefused, and what `carry` raises.
        """
        steps = self.handshake()
        try:
            frame = next(steps)
            while True:
                frame = steps.send(carry(frame))
        except StopIteration:
            return

    def _request_versions(self) -> Generator[bytearray, Buffer, ApiVersionsResponse]:
        version = _FIRST_REQUESTED_VERSION
        while True:
            request = ApiVersionsRequest()
            if version:
                request = ApiVersionsRequest(client_software_name=self._software, client_software_version=__version__)
            frame = yield self._framed(request, version)
            position = self._answered(frame)[2]
            # An error has version 0, whichever version was requested.
            code = int.from_bytes(frame[position : position + 2], "big", signed=True)
            known = codec.decode(ApiVersionsResponse, 0 if code else version, frame, position)[0]
            if code == ErrorCode.NONE:
                return known
            if code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise DecodeError(f"it does not speak Kafka's protocol: it answers ApiVersions with error {code}")
            version = 0

    def _log_in(self, login: logins.Login) -> Generator[bytearray, Buffer, None]:
        steps = log_in(login, self._nonce, lambda: self.version_of(SaslAuthenticateRequest))
        try:
            request, version = next(steps)
            while True:
                frame = yield self._framed(request, version)
                request, version = steps.send(self.answer(frame))
        except StopIteration:
            return
        except LogInFailed as error:
            raise LoginRefused(error.to_user) from error
        except UnknownRequest as error:
            raise LoginRefused(f"does not complete the login with {login.mechanism}: {error}") from error

    # -- frames

    def _framed(self, request: Message, version: int) -> bytearray:
        api_key = request.API_KEY
        assert api_key is not None, "only requests are sent"
        frame = bytearray(_HEADER.size)
        frame += len(self._client_id).to_bytes(2, "big") + self._client_id
        if request_header_version(api_key, version) == 2:
            frame.append(0)
        codec.encode_into(request, version, frame)
        self._sent(frame, api_key, version)
        return frame

    def _sent(self, frame: bytearray, api_key: int, version: int) -> None:
        """Writes the beginning of the header, and expects a response."""
        correlation_id = self._correlation_id
        _HEADER.pack_into(frame, 0, len(frame) - 4, api_key, version, correlation_id)
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._in_flight.append((correlation_id, api_key, version))

    def _answered(self, frame: Buffer) -> tuple[int, int, int]:
        """Returns the API key and version of the request that a response answers, and where the rest of the response
        header begins.
        """
        assert self._in_flight, "no request is outstanding"
        correlation_id, api_key, version = self._in_flight.popleft()
        if len(frame) < 4 or int.from_bytes(frame[:4], "big") != correlation_id:
            raise DecodeError("a response to another request")
        return api_key, version, 4
