"""SyncGroup (14), versions 0-5: the leader brings the assignment of its generation, everybody takes his part.

Answered when the assignment is in the log. KIP-345 (static members, 3+), KIP-559 (protocol type and name, 5).
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.sync_group import SyncGroupRequest


def handle(context: RequestContext, request: SyncGroupRequest, services: Services) -> None:
    services.groups.sync_group(context, request, context.reply)
