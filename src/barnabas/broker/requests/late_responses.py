"""Requests that wait: what they do and what their responses tell depends on the right that the client still has."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.request_rights import authorized
from barnabas.common.portions import whole
from barnabas.protocol.message import Message


def late_refusal(
    context: RequestContext, request: Message, handler: str, services: Services
) -> Callable[[], Message | None]:
    """Returns the function that authorizes a request again, which was authorized in this turn, if a rule has changed
    since. The function returns the response to a request that is refused as a whole, or None.
    """
    version = services.rules_version

    def refusal() -> Message | None:
        if services.rules_version == version:
            return None
        return whole(authorized(context, handler, request, services)).response

    return refusal


def judged_reply(
    context: RequestContext, request: Message, handler: str, services: Services
) -> Callable[[Message], None]:
    """Returns the function that sends the response to a request without rows, which was authorized in this turn. If a
    rule changes before the response, the request is authorized again, and may be refused.
    """
    refusal = late_refusal(context, request, handler, services)

    def reply(response: Message) -> None:
        refused = refusal()
        context.reply(response if refused is None else refused)

    return reply


def still_allowed(context: RequestContext, request: Message, handler: str, services: Services) -> Callable[[], bool]:
    """Returns the function that returns whether a request, which was authorized in this turn and waits, may proceed. If
    not, the function has sent the refusal.
    """
    refusal = late_refusal(context, request, handler, services)

    def is_allowed() -> bool:
        refused = refusal()
        if refused is not None:
            context.reply(refused)
        return refused is None

    return is_allowed
