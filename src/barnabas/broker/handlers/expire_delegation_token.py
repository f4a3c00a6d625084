"""ExpireDelegationToken (40), versions 1-2: sets the end of a token, or removes it.

The owner and the renewers of a token may do so; the controller decides (KIP-48).
"""

from __future__ import annotations

from barnabas.broker.requests import token_requests
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest, services: Services
) -> ExpireDelegationTokenResponse | None:
    if not token_requests.may_ask(context, services.config):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=token_requests.NO_TIME)
    if token_requests.is_decided_here(context, services):
        services.quorum.controller.tokens.expire(request, context.reply, requester=context.principal)
    else:
        token_requests.forward(context, request, services)
    return None
