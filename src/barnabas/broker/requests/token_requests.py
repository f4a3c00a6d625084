"""Requests about delegation tokens: who may send one, and the way to the controller.

A client that has logged in by a token must not get another one, and neither must a client without an identity. So a
client may send such a request only if its channel has authenticated it, by other means than a token. The broker that
has the channel checks both. The controller checks again that the client has not logged in by a token, which the
envelope says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.forwarding import forward_message
from barnabas.broker.requests.unanswered import timed_out
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft.token_control import TokenControl
from barnabas.protocol.message import Message
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse

R = TypeVar("R", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)

#: The first version whose responses name the requester of a token (KIP-373).
REQUESTER_VERSION: Final = 3
#: The value of the times in a refusal by a broker.
NO_TIME: Final = -1
_ANONYMOUS: Final = "User:ANONYMOUS"


def may_ask(context: RequestContext, config: BrokerConfig) -> bool:
    """Returns whether the client of this request may send requests about tokens."""
    if context.token_authenticated:
        return False
    if context.is_forwarded:
        return True
    protocol = config.security_protocol_of(context.listener)
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and context.principal == _ANONYMOUS)


def is_decided_here(context: RequestContext, services: Services) -> bool:
    """Returns whether the request came to the controller, in an envelope or not."""
    return context.listener in services.config.controller_listener_names


def forward(context: RequestContext, request: Message, services: Services) -> None:
    """Forwards the request to the active controller and replies with its response."""

    def answered(response: Message | None) -> None:
        context.reply(timed_out(request, context.api_version) if response is None else response)

    forward_message(services.access, context, request, answered)


def change(
    context: RequestContext, request: Message, services: Services, refusal: R, decide: Callable[[TokenControl], None]
) -> R | None:
    """Serves a request that changes a token: `decide` is called at the controller, which replies. Returns `refusal`,
    with its error, if this client may not send such a request."""
    if not may_ask(context, services.config):
        refusal.error_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        refusal.expiry_timestamp_ms = NO_TIME
        return refusal
    if is_decided_here(context, services):
        decide(services.quorum.controller.tokens)
    else:
        forward(context, request, services)
    return None
