"""Responses to requests that wait for others: what they tell depends on the right that the client still has."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.request_rights import authorized
from barnabas.common.portions import whole
from barnabas.protocol.message import Message


def judged_reply(
    context: RequestContext, request: Message, handler: str, services: Services
) -> Callable[[Message], None]:
    """Returns the function that sends the response to a request without rows, which was authorized in this turn. If a
    rule changes before the response, the request is authorized again, and may be refused.
    """
    version = services.rules_version

    def reply(response: Message) -> None:
        refusal: Message | None = None
        if services.rules_version != version:
            refusal = whole(authorized(context, handler, request, services)).response
        context.reply(response if refusal is None else refusal)

    return reply
