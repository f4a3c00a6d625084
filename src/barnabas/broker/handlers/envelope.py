"""Envelope (58), version 0: a client's request that a broker forwards to the controller (KIP-590).

The response frame returns in an envelope too; but if the decision fails because this node is no longer the active
controller, the envelope itself has the error NOT_CONTROLLER, so that the broker asks the next controller and its client
does not see the error. An envelope can contain the APIs that brokers forward. The sender of the envelope needs
CLUSTER_ACTION; the request in it is authorized here, with the principal and address that the broker put into the
envelope.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.broker.requests.client_connection import LONG_FRAME_BYTES
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import encode_response_in_steps
from barnabas.broker.requests.forwarding import decode_principal, shown_address
from barnabas.broker.requests.in_flight import COPIED_BYTES_MAX, Chunks, InFlight, finish_response, start_response
from barnabas.broker.requests.inner_requests import InnerRequest
from barnabas.common.continuations import owner
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, FORWARDED_IN_PART
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.index import request_class
from barnabas.protocol.wire import write_unsigned_varint

#: The APIs that a broker forwards, as they are or in part.
_FORWARDABLE: Final = FORWARDED_IN_PART | {key for key, offer in BROKER_APIS.items() if offer.is_forwarded}


def handle(context: RequestContext, request: EnvelopeRequest, services: Services) -> EnvelopeResponse | None:
    if not services.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        principal = decode_principal(request.request_principal or b"")
        client_host = shown_address(request.client_host_address)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        key, version, correlation_id, client_id, position = decode_request_header(request.request_data)
        offer = CONTROLLER_APIS.get(key)
        if offer is None or key not in _FORWARDABLE or not offer.version_min <= version <= offer.version_max:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if len(request.request_data) > LONG_FRAME_BYTES:
            message = None
        else:
            message, _ = codec.decode(request_class(key), version, request.request_data, position)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answered(response: Message) -> None:
        data = bytearray(correlation_id.to_bytes(4, "big", signed=True))
        if response_header_version(key, version) == 1:
            data.append(0)
        services.steps.begin(_append(response, version, data), lambda is_decided: reply(is_decided, data), owner())

    def reply(is_decided: bool, data: bytearray) -> None:
        if not is_decided:
            context.reply(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
        elif isinstance(context, InFlight) and len(data) > COPIED_BYTES_MAX:
            context.reply_encoded(_enveloped(context.correlation_id, data))
        else:
            context.reply(EnvelopeResponse(response_data=bytes(data)))

    def serve(message: Message | None) -> None:
        if message is None:
            context.reply(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
        elif services.authorizer is None:
            inner.serve(offer, message, services)
        else:
            services.steps.begin(inner.authorize(offer, message, services), serve_allowed, inner)

    def serve_allowed(message: Message | None) -> None:
        if message is not None:
            inner.serve(offer, message, services)

    inner = InnerRequest(context, key, version, correlation_id, client_id, client_host, principal.name, answered)
    inner.token_authenticated, inner.is_forwarded = principal.token_authenticated, True
    if message is None:
        services.steps.start(_decoding(key, version, request.request_data, position), serve, owner())
    else:
        serve(message)
    return None


def _decoding(key: int, version: int, data: bytes, position: int) -> Generator[int, None, Message | None]:
    """Decodes the long request within an envelope in steps; None if it cannot be decoded."""
    try:
        message, _ = yield from codec.decode_in_steps(request_class(key), version, data, position)
    except DecodeError:
        return None
    return message


#: The number of rows read per step.
_ROWS_PER_STEP = 100


def _append(response: Message, version: int, data: bytearray) -> Generator[int, None, bool]:
    """Appends the inner response to `data`, which has its header. Returns False if this node is not the controller."""
    if (yield from has_not_controller_error(response)):
        return False
    # A few elements can make a long response too: names have up to 32,767 letters.
    yield from encode_response_in_steps(response, version, data)
    return True


def _enveloped(correlation_id: int, data: bytearray) -> Chunks:
    """Returns the response frame of an envelope that contains `data`, without a copy: a request of 50 MB can have a
    response of 100 MB, and each copy would hold up the loop for 50 ms.
    """
    frame = codec.encode(EnvelopeResponse(response_data=b""), EnvelopeResponse.VERSIONS[1])
    head = start_response(
        correlation_id, response_header_version(EnvelopeResponse.API_KEY, EnvelopeResponse.VERSIONS[1])
    )
    write_unsigned_varint(head, len(data) + 1)
    tail = frame[1:]  # The fields after the empty data, whose size takes one byte.
    finish_response(head, len(data) + len(tail))
    return [head, data, tail]


def has_not_controller_error(response: Message) -> Generator[int, None, bool]:
    """Returns whether any error code in the response means that this node is not the leader."""
    is_about_quorum = isinstance(response, DescribeQuorumResponse)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_about_quorum else ErrorCode.NOT_CONTROLLER
    found = yield from _contains_code(type(response), response, code)
    return found


def _contains_code(message: type[Message], struct: Struct, code: ErrorCode) -> Generator[int, None, bool]:
    has_code, arrays, structs = _code_places(message, type(struct))
    if has_code and getattr(struct, "error_code") == code:  # noqa: B009
        return True
    for attribute in arrays:
        for place, each in enumerate(getattr(struct, attribute) or ()):
            if place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
                yield 1
            if (yield from _contains_code(message, each, code)):
                return True
    for attribute in structs:
        value = getattr(struct, attribute)
        if value is not None and (yield from _contains_code(message, value, code)):
            return True
    return False


#: Whether a struct has an error code, and its arrays and structs that can contain others.
_Places = tuple[bool, tuple[str, ...], tuple[str, ...]]
_known_code_places: dict[tuple[type[Message], type[Struct]], _Places] = {}


def _code_places(message: type[Message], struct: type[Struct]) -> _Places:
    found = _known_code_places.get((message, struct))
    if found is None:
        inner = [
            field
            for field in struct.FIELDS
            if field.is_struct and any(_code_places(message, getattr(message, field.element_type)))
        ]
        found = _known_code_places[message, struct] = (
            any(field.attribute == "error_code" for field in struct.FIELDS),
            tuple(field.attribute for field in inner if field.is_array),
            tuple(field.attribute for field in inner if not field.is_array),
        )
    return found
