"""RemoveRaftVoter (81), version 0: a voter, named with its directory, votes no more (KIP-853).

The answer comes when the new voters are committed.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


def handle(context: RequestContext, request: RemoveRaftVoterRequest, services: Services) -> None:
    services.raft.server.serve(request, context.api_version, context.listener, context.reply)
