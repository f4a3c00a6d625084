"""BrokerHeartbeat (63), versions 0-1: a broker says that it lives, and what it wishes (KIP-631).

The connection that heartbeats come by is a sign of life of its own: when it ends, the broker is looked for at once.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


def handle(context: RequestContext, request: BrokerHeartbeatRequest, services: Services) -> None:
    if services.controller.is_active:
        broker_id, broker_epoch = request.broker_id, request.broker_epoch
        context.when_disconnected(lambda: services.liveness.on_disconnected(broker_id, broker_epoch))
    services.controller.broker_heartbeat(request, context.reply)
