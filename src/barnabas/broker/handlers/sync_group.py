"""SyncGroup (14), versions 0-5: the group leader sends the assignment of its generation, and each member gets its part.

The response is sent when the assignment is committed. KIP-345 (static members, 3+), KIP-559 (protocol type and name,
5).
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.late_responses import judged_reply
from barnabas.protocol.messages.sync_group import SyncGroupRequest


def handle(context: RequestContext, request: SyncGroupRequest, services: Services) -> None:
    services.groups.sync_group(context, request, judged_reply(context, request, "sync_group", services))
