"""Forwarding of requests that only the active controller can decide (Envelope, KIP-590).

A client's frame goes into the envelope unchanged, with its principal and address; the response frame comes back in an
envelope and goes to the client unchanged. If the controller changes meanwhile, `ControllerAccess` sends the envelope to
the next one (`broker/peers/controller_access.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, NamedTuple

from barnabas.broker.peers.controller_access import ControllerAccess, PendingRequest
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import UNEXPECTED, error_response
from barnabas.broker.requests.in_flight import COPIED_BYTES_MAX, InFlight
from barnabas.broker.requests.unanswered import timed_out
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.common.host import Timer
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.records_misc import DefaultPrincipalData
from barnabas.protocol.wire import skip_tagged_fields

#: The minimum time that a client's request waits for a controller's response, whatever its own timeout: an election
#: takes time.
TIMEOUT_MS_MIN: Final = 5_000
_PRINCIPAL_VERSION: Final = 0


def forward(request: InFlight, message: Message, frame: memoryview | bytes, services: Services) -> None:
    """Forwards `frame`, a request without its size field, of which `message` is the decoded form. If no controller
    decides it in time, the client gets a retriable error."""
    forwarded = _ForwardedRequest(request, message)
    forwarded.send(bytes(frame), services)


class _ForwardedRequest:
    """A client's request until it is answered, or until its own `timeout_ms`, if it has one, ends."""

    __slots__ = ("_is_over", "_message", "_pending", "_request", "_timer")

    def __init__(self, request: InFlight, message: Message) -> None:
        self._request = request
        self._message = message
        self._is_over = False
        self._pending: PendingRequest | None = None
        self._timer: Timer | None = None

    def send(self, frame: bytes, services: Services) -> None:
        self._pending = services.access.begin(_envelope(self._request, frame), self._answered)
        timeout_ms: int | None = getattr(self._message, "timeout_ms", None)
        if timeout_ms is not None and not self._is_over:
            self._timer = services.host.timers.call_later(max(timeout_ms, TIMEOUT_MS_MIN), self._on_timeout)

    def _on_timeout(self) -> None:
        assert self._pending is not None, "a request was sent before it timed out"
        self._pending.abandon()
        self._answered(None)

    def _answered(self, response: Message | None) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        request = self._request
        if request.connection.is_closed:
            return
        if isinstance(response, EnvelopeResponse) and response.error_code == ErrorCode.NONE and response.response_data:
            answer = response.response_data
            if request.throttle is not None:
                _apply_throttle_time(request, answer)
            head = len(answer).to_bytes(4, "big")
            # A long response is not copied: it can have 100 MB.
            request.reply_with(lambda: [head + answer] if len(answer) <= COPIED_BYTES_MAX else [head, answer])
        elif response is None:
            request.reply(timed_out(self._message, request.api_version))
        else:
            self._refused(request, response)

    def _refused(self, request: InFlight, response: Message) -> None:
        """Answers the client with UNKNOWN_SERVER_ERROR after the controller refused the envelope itself, as Kafka's
        brokers do.
        """
        code = ErrorCode(getattr(response, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR))
        cause = f"{request} could not be forwarded: the controller returned {code.name}"
        answer = error_response(self._message, request.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
        if answer is None or code is ErrorCode.UNSUPPORTED_VERSION:
            request.connection.fail(cause, None)
            return
        request.connection.log.request_failed(request.connection.peer, cause, None)
        request.reply(answer)


def _apply_throttle_time(request: InFlight, answer: bytes) -> None:
    """Mutes the client for the throttle time in the controller's response, which is its first field (KIP-599)."""
    assert request.throttle is not None, "the cluster has quotas"
    first = response_class(request.api_key).FIELDS[0]
    if first.attribute == "throttle_time_ms" and first.is_in(request.api_version):
        at = 4 + response_header_version(request.api_key, request.api_version)
        request.throttle.answered(int.from_bytes(answer[at : at + 4], "big"))


def forward_message(
    access: ControllerAccess,
    context: RequestContext,
    request: Message,
    reply: Callable[[Message | None], None],
) -> None:
    """Forwards the remainder of a client's request after this broker's own part, in the version that the client chose.
    `reply` receives None if no controller answered in time."""
    api_key, version = context.api_key, context.api_version
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=context.correlation_id,
        client_id=context.client_id,
    )
    frame = codec.encode(header, request_header_version(api_key, version))
    codec.encode_into(request, version, frame)

    def answered(response: Message | None) -> None:
        data = response.response_data if isinstance(response, EnvelopeResponse) else None
        if not data:
            reply(None)
            return
        position = 4
        if response_header_version(api_key, version) == 1:
            position = skip_tagged_fields(data, position)
        reply(codec.decode(response_class(api_key), version, data, position)[0])

    access.send(_envelope(context, bytes(frame)), answered)


def _envelope(context: RequestContext, data: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=data,
        request_principal=encode_principal(context.principal, token_authenticated=context.token_authenticated),
        client_host_address=packed_address(context.client_host),
    )


def encode_principal(principal: str, *, token_authenticated: bool = False) -> bytes:
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION.to_bytes(2, "big") + codec.encode(
        DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated), _PRINCIPAL_VERSION
    )


class ForwardedPrincipal(NamedTuple):
    """The principal of a client in an envelope."""

    name: str
    token_authenticated: bool


def decode_principal(data: bytes) -> ForwardedPrincipal:
    """Returns the principal of an envelope. Raises DecodeError."""
    found, _ = codec.decode(DefaultPrincipalData, int.from_bytes(data[:2], "big"), data, 2)
    return ForwardedPrincipal(f"{found.type}:{found.name}", found.token_authenticated)


def packed_address(client_host: str) -> bytes:
    """Returns the 4 or 16 bytes of a client's address ("/127.0.0.1")."""
    try:
        return ip_address(client_host.removeprefix("/")).packed
    except ValueError:
        return bytes(4)


def shown_address(data: bytes) -> str:
    """Returns the address of these bytes as Java shows it. Raises DecodeError."""
    if len(data) not in (4, 16):
        raise DecodeError(f"a client address of {len(data)} bytes, expected 4 or 16")
    if len(data) == 4:
        return f"/{ip_address(data)}"
    return "/" + ":".join(f"{int.from_bytes(data[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
