"""DescribeQuorum (55), versions 0-2: voters and observers with their offsets, as the leader knows them (KIP-595,
KIP-836).

A broker's listener forwards the request to the leader.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest


def handle(context: RequestContext, request: DescribeQuorumRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
