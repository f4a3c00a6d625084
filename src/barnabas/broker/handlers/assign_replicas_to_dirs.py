"""AssignReplicasToDirs (73), version 0, on controller listeners: the directories of a broker's replicas (KIP-858)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def handle(context: RequestContext, request: AssignReplicasToDirsRequest, services: Services) -> None:
    services.quorum.controller.assign_replicas_to_dirs(request, context.reply)
