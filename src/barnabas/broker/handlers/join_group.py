"""JoinGroup (11), versions 0-9: joins the next generation of a classic group.

The response is sent when the join phase is complete. KIP-62 (rebalance timeout, 1+), KIP-394 (member id required, 4+),
KIP-345 (static members, 5+), KIP-559 (protocol type, 7+), KIP-800 (reason, 8+), KIP-814 (leader skips the assignment,
9).
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.late_responses import judged_reply
from barnabas.protocol.messages.join_group import JoinGroupRequest


def handle(context: RequestContext, request: JoinGroupRequest, services: Services) -> None:
    services.groups.join_group(context, request, judged_reply(context, request, "join_group", services))
