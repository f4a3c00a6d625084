"""UpdateRaftVoter (82), version 0: a voter reports its endpoints and supported kraft.version (KIP-853)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest


def handle(context: RequestContext, request: UpdateRaftVoterRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
