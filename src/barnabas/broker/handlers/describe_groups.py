"""DescribeGroups (15), versions 0-6: state, protocol and members of groups.

KIP-430 (authorized operations, 3+), KIP-345 (instance ids, 4+),
KIP-1043 (an unknown group is an error, 6).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.group_protocols import group_operations
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

ERROR_ROWS: Final = (ErrorRows("groups", "groups", key="group_id"),)
PIECES: Final = Pieces(300, "groups", "groups")


def handle(context: RequestContext, request: DescribeGroupsRequest, services: Services) -> None:
    def reply(response: DescribeGroupsResponse) -> None:
        if request.include_authorized_operations:
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = group_operations(context, services, group.group_id)
        context.reply(response)

    services.groups.describe_groups(context, request, reply)
