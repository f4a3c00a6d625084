"""SaslAuthenticate (36), versions 0-2: ILLEGAL_SASL_STATE, because the log-in is over, or the listener has none.

A request during the log-in is answered by `protocol.sasl_gate` and does not reach this handler.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(context: RequestContext, request: SaslAuthenticateRequest, services: Services) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
