"""RenewDelegationToken (39), versions 1-2: moves the expiry time of a token.

The owner and the renewers of a token may do so; the controller decides (KIP-48).
"""

from __future__ import annotations

from barnabas.broker.requests import token_requests
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle(
    context: RequestContext, request: RenewDelegationTokenRequest, services: Services
) -> RenewDelegationTokenResponse | None:
    return token_requests.change(
        context,
        request,
        services,
        RenewDelegationTokenResponse(),
        lambda tokens: tokens.renew(request, context.reply, requester=context.principal),
    )
