"""ExpireDelegationToken (40), versions 1-2: sets the expiry time of a token, or removes the token.

The owner and the renewers of a token may do so; the controller decides (KIP-48).
"""

from __future__ import annotations

from barnabas.broker.requests import token_requests
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest, services: Services
) -> ExpireDelegationTokenResponse | None:
    return token_requests.change(
        context,
        request,
        services,
        ExpireDelegationTokenResponse(),
        lambda tokens: tokens.expire(request, context.reply, requester=context.principal),
    )
