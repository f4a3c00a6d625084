"""ControllerRegistration (70), version 0: registers the endpoints of an inactive controller (KIP-919)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest


def handle(context: RequestContext, request: ControllerRegistrationRequest, services: Services) -> None:
    services.quorum.controller.register_controller(request, context.reply)
