"""RemoveRaftVoter (81), version 0: removes a voter, identified by node id and directory id (KIP-853).

The response is sent when the new voter set is committed.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


def handle(context: RequestContext, request: RemoveRaftVoterRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
