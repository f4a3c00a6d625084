"""Envelope (58), version 0: a client's request that a broker passes on, decided here (KIP-590).

The answer's frame goes back in one too; but where the decision fails because this node leads no more, the envelope
itself says NOT_CONTROLLER, so that the broker asks the next controller instead of telling its client. What may be in an
envelope is what brokers pass on; who asked is whom the broker vouches for.
"""

from __future__ import annotations

from barnabas.broker.context import RequestContext, Services
from barnabas.broker.error_answers import encode_answer
from barnabas.broker.forwarding import decode_principal, shown_address
from barnabas.broker.inner_requests import InnerRequest
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.index import request_class


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
        if offer is None or key not in BROKER_APIS or not offer.version_min <= version <= offer.version_max:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        message, _ = codec.decode(request_class(key), version, request.request_data, position)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answered(response: Message) -> None:
        if is_of_former_controller(response):
            context.reply(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        data = bytearray(correlation_id.to_bytes(4, "big"))
        if response_header_version(key, version) == 1:
            data.append(0)
        encode_answer(response, version, data)
        context.reply(EnvelopeResponse(error_code=ErrorCode.NONE, response_data=bytes(data)))

    inner = InnerRequest(context, key, version, correlation_id, client_id, client_host, principal, answered)
    inner.serve(offer, message, services)
    return None


def is_of_former_controller(response: Message) -> bool:
    """Whether it says anywhere that who answers does not lead (any more)."""
    is_about_quorum = isinstance(response, DescribeQuorumResponse)
    return _names(response, ErrorCode.NOT_LEADER_OR_FOLLOWER if is_about_quorum else ErrorCode.NOT_CONTROLLER)


def _names(struct: Struct, code: ErrorCode) -> bool:
    for field in struct.FIELDS:
        value = getattr(struct, field.attribute)
        if field.attribute == "error_code":
            if value == code:
                return True
        elif isinstance(value, list):
            if any(_names(each, code) for each in value if isinstance(each, Struct)):
                return True
        elif isinstance(value, Struct) and _names(value, code):
            return True
    return False
