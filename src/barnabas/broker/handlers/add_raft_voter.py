"""AddRaftVoter (80), version 0: makes a node that has caught up a voter (KIP-853).

The response is sent when the new voter set is committed.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest


def handle(context: RequestContext, request: AddRaftVoterRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
