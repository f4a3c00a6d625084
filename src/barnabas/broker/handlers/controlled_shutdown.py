"""ControlledShutdown (7), versions 0-3: a broker asks the controller to move its leaderships (ZooKeeper mode)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest


def handle(context: RequestContext, request: ControlledShutdownRequest, services: Services) -> None:
    services.zookeeper.controller.controlled_shutdown(request, context.reply)
