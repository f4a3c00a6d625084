"""Heartbeat (12), versions 0-4: renews a member's session and reports a rebalance to it. KIP-345 (3+)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.heartbeat import HeartbeatRequest


def handle(context: RequestContext, request: HeartbeatRequest, services: Services) -> None:
    services.groups.heartbeat(context, request, context.reply)
