"""BeginQuorumEpoch (53), versions 0-1: the leader of a new epoch announces itself to the voters (KIP-595, KIP-853)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest


def handle(context: RequestContext, request: BeginQuorumEpochRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
