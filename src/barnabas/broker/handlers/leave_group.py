"""LeaveGroup (13), versions 0-5: removes members from a group, at their own or an administrator's request.

KIP-345 (several members, by instance id, 3+), KIP-800 (reason, 5).
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.leave_group import LeaveGroupRequest


def handle(context: RequestContext, request: LeaveGroupRequest, services: Services) -> None:
    services.groups.leave_group(context, request, context.reply)
