"""UnregisterBroker (64), version 0: removes the registration of a broker that will not return (KIP-631)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(context: RequestContext, request: UnregisterBrokerRequest, services: Services) -> None:
    def done(error: ErrorCode, text: str | None) -> None:
        context.reply(UnregisterBrokerResponse(error_code=error, error_message=text))

    services.quorum.controller.unregister_broker(request.broker_id, done)
