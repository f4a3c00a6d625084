"""ElectLeaders (43), versions 0-2: preferred and unclean elections (KIP-183, KIP-460), decided by the controller."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest


def handle(context: RequestContext, request: ElectLeadersRequest, services: Services) -> None:
    services.controller.replication.elect_leaders(request, context.reply, actor=context.principal)
