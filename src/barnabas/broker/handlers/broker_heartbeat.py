"""BrokerHeartbeat (63), versions 0-1: renews a broker's session and carries its requests to the controller (KIP-631).

The connection that carries heartbeats is a sign of life too: when it closes, the controller probes the broker
immediately.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


def handle(context: RequestContext, request: BrokerHeartbeatRequest, services: Services) -> None:
    if services.controller.is_active:
        broker_id, broker_epoch = request.broker_id, request.broker_epoch
        context.when_disconnected(lambda: services.quorum.liveness.on_disconnected(broker_id, broker_epoch))
    services.quorum.controller.broker_heartbeat(request, context.reply)
