"""One blocking connection to one broker: requests out, their answers in order.

Spark's tasks are plain synchronous processes, so nothing here waits for more than one thing at a time; one request may
be sent before the answer of the last is read, which is all the overlap that fetching needs (`send`, then `receive`).

A connection that failed is of no further use: every network fault, a malformed answer too, is an OSError, and the
owner drops it. Records in an answer are views into its own frame, which nobody writes to again.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Final, TypeVar, cast

from barnabas import __version__
from barnabas.common.errors import DecodeError, EncodeError, ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.wire import skip_tagged_fields
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.faults import RequestRefused
from barnabas.spark.security import secured

_HEADER: Final = struct.Struct(">ihhi")
_FIRST_ASKED_VERSION: Final = 3
#: An answer longer than this is somebody who speaks another protocol.
_FRAME_BYTES_MAX: Final = 1 << 30
_RECEIVE_BUFFER_BYTES: Final = 1 << 20

M = TypeVar("M", bound=Message)


class Connection:
    """Connected and past ApiVersions (and the log-in) once constructed. OSError where that fails."""

    def __init__(self, address: tuple[str, int], settings: ClientSettings) -> None:
        self.address = address
        self._client_id = settings.client_id.encode()
        self._in_flight: deque[tuple[int, int, int]] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        timeout_s = settings.request_timeout_ms / 1000
        self._socket = socket.create_connection(address, timeout=min(timeout_s, settings.connect_timeout_ms / 1000))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            self._socket = secured(self._socket, address[0], settings)
            self._negotiate()
            self._socket.settimeout(timeout_s)
        except BaseException:
            self._socket.close()
            raise

    @property
    def waiting(self) -> int:
        """How many answers are still to be received."""
        return len(self._in_flight)

    def version_of(self, request_class: type[Message], version_max: int | None = None) -> int:
        """The highest version that both sides know. RequestRefused if there is none."""
        api_key = request_class.API_KEY
        assert api_key is not None
        low, high = self._versions.get(api_key, (0, -1))
        own_low, own_high = request_class.VERSIONS
        high = min(high, own_high if version_max is None else version_max)
        if high < max(low, own_low):
            raise RequestRefused(f"the broker at {self.shown} does not know {request_class.NAME} as it is needed here")
        return high

    @property
    def shown(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def ask(self, request: Message, answer: type[M], version_max: int | None = None) -> M:
        """The answer to one request; nothing else may be in flight."""
        assert not self._in_flight, "an answer is still to be received"
        self.send(request, version_max)
        return cast("M", self.receive())

    def send(self, request: Message, version_max: int | None = None) -> None:
        self._put(request, self.version_of(type(request), version_max))

    def receive(self, timeout_ms: int | None = None) -> Message:
        """The answer to the request that was sent first. `timeout_ms` replaces the usual one for this answer."""
        correlation_id, api_key, version = self._in_flight.popleft()
        if timeout_ms is not None:
            usual_s = self._socket.gettimeout()
            self._socket.settimeout(timeout_ms / 1000)
            frame = self._frame()
            self._socket.settimeout(usual_s)
        else:
            frame = self._frame()
        try:
            if len(frame) < 4 or int.from_bytes(frame[:4], "big") != correlation_id:
                raise DecodeError("an answer to another request")
            position = skip_tagged_fields(frame, 4) if response_header_version(api_key, version) == 1 else 4
            return codec.decode(response_class(api_key), version, frame, position)[0]
        except DecodeError as error:
            raise ConnectionError(f"{self.shown} gives a malformed answer: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def _negotiate(self) -> None:
        version = _FIRST_ASKED_VERSION
        while True:
            request = ApiVersionsRequest(client_software_name="barnabas-spark", client_software_version=__version__)
            self._put(request if version else ApiVersionsRequest(), version)
            self._in_flight.popleft()
            frame = self._frame()
            # An error comes in version 0, whichever was asked for.
            code = int.from_bytes(frame[4:6], "big", signed=True)
            try:
                known = codec.decode(ApiVersionsResponse, 0 if code else version, frame, 4)[0]
            except DecodeError as error:
                raise ConnectionError(f"{self.shown} does not speak Kafka's protocol: {error}") from error
            if code == ErrorCode.NONE:
                break
            if code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise ConnectionError(f"{self.shown} answers ApiVersions with error {code}")
            version = 0
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in known.api_keys}

    def _put(self, request: Message, version: int) -> None:
        api_key = request.API_KEY
        assert api_key is not None
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        frame = bytearray(_HEADER.pack(0, api_key, version, correlation_id))
        frame += len(self._client_id).to_bytes(2, "big") + self._client_id
        if request_header_version(api_key, version) == 2:
            frame.append(0)
        try:
            codec.encode_into(request, version, frame)
        except EncodeError as error:
            raise RequestRefused(f"the broker at {self.shown} is too old: {error}") from error
        frame[0:4] = (len(frame) - 4).to_bytes(4, "big")
        self._in_flight.append((correlation_id, api_key, version))
        self._socket.sendall(frame)

    def _frame(self) -> memoryview:
        size = int.from_bytes(self._exactly(4), "big", signed=True)
        if not 0 <= size <= _FRAME_BYTES_MAX:
            raise ConnectionError(f"{self.shown} does not speak Kafka's protocol: a frame of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        got = 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if count == 0:
                raise ConnectionResetError(f"{self.shown} has closed the connection")
            got += count
        return view
