"""A request in flight, and the encoding of its response.

A request owns its continuations (`common.continuations`). If one fails, the request is answered with
UNKNOWN_SERVER_ERROR; if its API has no such response, or if the request holds back later ones, its connection is
closed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Protocol

from barnabas.broker.requests.error_responses import (
    UNEXPECTED,
    encode_response,
    encode_response_in_steps,
    error_response,
)
from barnabas.broker.requests.steps import Steps
from barnabas.broker.throttling.muting import BY_HOST, Muting
from barnabas.broker.throttling.request_throttle import RequestThrottle
from barnabas.common import effort
from barnabas.common.continuations import run, run_within
from barnabas.common.effort import Work
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.common.host import Buffer
from barnabas.common.metrics import TimeBuckets
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, Offer
from barnabas.protocol.header import response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import API_NAMES

_HEADER_V0 = struct.Struct(">ii")
_HEADER_V1 = struct.Struct(">iiB")
#: Responses with more elements are encoded in steps. The name and the error message of one have up to 64 KB together.
LONG_ELEMENTS: Final = 250
#: A response of this size has few elements, which are freed at once.
_FREED_AT_ONCE_BYTES: Final = 64 * 1024
#: Data up to this size is copied into the buffer of the preceding fields, which saves a chunk.
COPIED_BYTES_MAX: Final = 16 * 1024
#: API names for the log lines about a failed request.
_OFFER_NAMES: Final = {key: offer.name for key, offer in (*CONTROLLER_APIS.items(), *BROKER_APIS.items())}

Chunks = list[Buffer]
#: Replaces the chunks of a response that was sent.
_SENT: Chunks = []


def start_response(correlation_id: int, header_version: int) -> bytearray:
    """Returns a response with its header; `finish_response` fills in its size."""
    if header_version == 0:
        return bytearray(_HEADER_V0.pack(0, correlation_id))
    return bytearray(_HEADER_V1.pack(0, correlation_id, 0))


def finish_response(head: bytearray, more_bytes: int = 0) -> None:
    """Fills in the size of `head` and the `more_bytes` that follow it."""
    head[0:4] = (len(head) - 4 + more_bytes).to_bytes(4, "big")


class Shortcut(Protocol):
    """A fast path for a connection's next request if it resembles its last one."""

    def serve(self, frame: memoryview) -> bool:
        """Serves the request if it matches. Returns False, with nothing changed, if it does not."""


class RepeatedRequest(Protocol):
    """The last request of a connection, which the next one is likely to resemble."""

    #: API key, version, client id, and the position of the body.
    header: tuple[int, int, str | None, int]

    def matches(self, frame: memoryview) -> bool:
        """Returns whether the request has the same header and differs only in numbers that its handler knows."""


class ConnectionLog(Protocol):
    """The log of closed connections and failed requests."""

    def closed_for_cause(self, peer: str, cause: str, error: BaseException | None) -> None: ...

    def request_failed(self, peer: str, what: str, error: BaseException | None) -> None:
        """Logs that a request failed because of an internal error; its connection stays open."""


class RequestConnection(Protocol):
    """The connection of a request (`broker.requests.client_connection.Connection`)."""

    #: The host of the client, and the same with its port for log lines.
    client_host: str
    peer: str
    listener: str
    principal: str
    #: Whether the client has logged in by a delegation token.
    token_authenticated: bool
    #: Name and version of the client library (KIP-511).
    client_software: tuple[str, str]
    shortcut: Shortcut | None
    repeated: RepeatedRequest | None
    is_closed: bool
    muting: Muting | None
    #: The unanswered requests, oldest first.
    in_flight: list[InFlight]

    @property
    def log(self) -> ConnectionLog: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def offers(self) -> Mapping[int, Offer]: ...
    @property
    def is_exclusive(self) -> bool: ...
    def begin_exclusive(self) -> None: ...
    def end_exclusive(self) -> None: ...
    def complete(self, request: InFlight, chunks: Chunks) -> None: ...
    def respond_shortly(self, chunk: bytearray) -> None: ...
    def when_closed(self, callback: Callable[[], None]) -> None: ...
    def pause_writing(self, reason: int = BY_HOST) -> None: ...
    def resume_writing(self, reason: int = BY_HOST) -> None: ...
    def fail(self, cause: str, error: BaseException | None) -> None: ...
    def on_error(self, error: Exception) -> None: ...


class InFlight:
    """A request in flight (a `broker.requests.context.RequestContext`)."""

    __slots__ = (
        "_failed",
        "amend",
        "api_key",
        "api_version",
        "chunks",
        "client_id",
        "connection",
        "correlation_id",
        "has_long_frame",
        "message",
        "now_ms",
        "on_abandoned",
        "throttle",
        "times",
    )

    def __init__(
        self,
        connection: RequestConnection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        times: TimeBuckets,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        #: The counts to which the request is added when it is answered.
        self.times = times
        #: The decoded message; None for APIs whose handlers decode by themselves.
        self.message: Message | None = None
        #: Whether the message was decoded in steps, and is freed so.
        self.has_long_frame = False
        self.chunks: Chunks | None = None
        #: The throttling of the request, which adds to the rates of its client; None while the cluster has no quotas.
        self.throttle: RequestThrottle | None = None
        #: Whether the request was answered with an error or abandoned: later responses are dropped.
        self._failed = False
        self.on_abandoned: Callable[[], object] | None = None
        #: A function that completes the handler's response with the rows that the authorizer refused.
        self.amend: Callable[[Any], Any] | None = None

    def turn_name(self) -> tuple[str, str]:
        """Returns the request and its sender (`continuations.Owner`)."""
        who = f"client {self.client_id!r} from {self.connection.client_host}"
        return API_NAMES[self.api_key], f"version {self.api_version} of {who}"

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def token_authenticated(self) -> bool:
        return self.connection.token_authenticated

    @property
    def is_forwarded(self) -> bool:
        return False

    def release(self) -> None:
        """Clears the references that form cycles after the response, so that no garbage collection is needed."""
        self.chunks = _SENT
        self.on_abandoned = None
        self.free_message()
        self.message = None
        self.amend = None

    def free_message(self) -> None:
        """Frees the message of a long frame in steps, once nobody holds it."""
        if self.has_long_frame:
            self.connection.steps.free(self.message)

    def refused(self) -> None:
        """Ends the exemption from quotas, because the client may not send this request: it is no node of the
        cluster."""
        if self.throttle is not None:
            self.throttle.is_exempt = False

    def amended(self, response: Message) -> Message:
        """Returns the handler's response, completed with the rows that the authorizer refused, and without what the
        client may not see.
        """
        amend, self.amend = self.amend, None
        if amend is None:
            return response
        changed: Message = amend(response)
        return changed

    def encode(self, response: Message) -> Chunks:
        """Returns the whole response frame."""
        if self.throttle is not None:
            response = self.throttle.with_throttle_time(response, self.api_version)
        head = start_response(self.correlation_id, response_header_version(self.api_key, self.api_version))
        encode_response(response, self.api_version, head)
        effort.add(Work.ENCODED_BYTE, len(head))
        finish_response(head)
        return [head]

    def reply(self, response: Message) -> None:
        response = self.amended(response)
        if self.is_long(response):
            self.connection.steps.start(self._encode_in_steps(response), self.reply_encoded, self, self._is_wanted)
        else:
            self.reply_with(lambda: self.encode(response))

    def replied_in_steps(self, response: Message) -> Generator[int, None, None]:
        """Sends a response like `reply` does, but in steps of work. The last step answers the request."""
        response = self.amended(response)
        if self.is_long(response):
            chunks = yield from self._encode_in_steps(response)
            self.reply_encoded(chunks)
        else:
            self.reply(response)

    def is_long(self, response: Message) -> bool:
        """Returns whether encoding the response takes too long for one turn."""
        return codec.is_longer(response, LONG_ELEMENTS)

    def _encode_in_steps(self, response: Message) -> Generator[int, None, Chunks]:
        if self.throttle is not None:
            response = self.throttle.with_throttle_time(response, self.api_version)
        head = start_response(self.correlation_id, response_header_version(self.api_key, self.api_version))
        yield from encode_response_in_steps(response, self.api_version, head)
        finish_response(head)
        if len(head) > _FREED_AT_ONCE_BYTES:
            self.connection.steps.free(response)
        return [head]

    def reply_encoded(self, chunks: Chunks) -> None:
        """Sends the response that these chunks encode."""
        if self._is_wanted():
            self.connection.complete(self, chunks)

    def _is_wanted(self) -> bool:
        return not self.connection.is_closed and not self._failed

    def when_abandoned(self, cancel: Callable[[], object] | None) -> None:
        """Sets the function to call if the connection closes before the response, so that a delayed operation ends.
        None removes it."""
        self.on_abandoned = cancel

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        self.connection.when_closed(callback)

    def reply_with(self, answer: Callable[[], Chunks | None]) -> None:
        """Sends the frame that `answer` returns, or nothing yet if it returns None. If `answer` fails, the error
        belongs to this request, not to the caller."""
        if not self.connection.is_closed and not self._failed:
            run_within(self, self._answer, answer)

    def _answer(self, answer: Callable[[], Chunks | None]) -> None:
        chunks = answer()
        if chunks is not None:
            self.connection.complete(self, chunks)

    def on_error(self, error: Exception) -> None:
        """Handles the failure of a continuation of this request (`continuations.Owner`)."""
        connection = self.connection
        if isinstance(error, DecodeError):
            connection.fail(str(error), None)
        elif self.message is None and isinstance(error, struct.error | IndexError):
            connection.fail("malformed request", error)
        elif connection.is_closed or self.chunks is not None or self._failed:
            connection.log.request_failed(connection.peer, f"{self} failed after its end", error)
        else:
            self._failed = True
            run(connection, self._refuse, error)

    def _refuse(self, error: Exception) -> None:
        connection, version = self.connection, self.api_version
        on_abandoned, self.on_abandoned = self.on_abandoned, None
        if on_abandoned is not None:
            on_abandoned()
        answer = None
        if self.message is not None and not connection.is_exclusive:
            answer = error_response(self.message, version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
        if answer is None:
            connection.fail(f"{self} failed", error)
        else:
            text = f"{self} failed; the response is UNKNOWN_SERVER_ERROR"
            connection.log.request_failed(connection.peer, text, error)
            connection.complete(self, self.encode(answer))

    def __str__(self) -> str:
        name = _OFFER_NAMES.get(self.api_key, "request")
        return f"{name} ({self.api_key}) version {self.api_version} of client {self.client_id!r}"
