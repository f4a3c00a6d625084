"""BrokerRegistration (62), versions 0-4: registers a broker process with the cluster (KIP-631)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest


def handle(context: RequestContext, request: BrokerRegistrationRequest, services: Services) -> None:
    services.quorum.controller.register_broker(request, context.reply)
