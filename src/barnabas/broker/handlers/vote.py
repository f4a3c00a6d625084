"""Vote (52), versions 0-2: a candidate's request for a vote, or a pre-vote (version 2) (KIP-595, KIP-996)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.vote import VoteRequest


def handle(context: RequestContext, request: VoteRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
