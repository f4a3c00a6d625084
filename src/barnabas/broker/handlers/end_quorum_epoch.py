"""EndQuorumEpoch (54), versions 0-1: a leader that resigns names its preferred successors (KIP-595, KIP-853)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest


def handle(context: RequestContext, request: EndQuorumEpochRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
