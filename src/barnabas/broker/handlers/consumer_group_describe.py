"""ConsumerGroupDescribe (69), versions 0-1: groups of the consumer protocol, with current and target assignments.

Version 1 adds the type of each member (KIP-1099).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.group_protocols import group_operations, serves_consumer_protocol
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

ERROR_ROWS: Final = (ErrorRows("groups", "group_ids", key="group_id"),)
PIECES: Final = Pieces(200, "group_ids", "groups")


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest, services: Services
) -> ConsumerGroupDescribeResponse | None:
    if not serves_consumer_protocol(services):
        refused = ConsumerGroupDescribeResponse.DescribedGroup
        code = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[refused(group_id=group_id, error_code=code) for group_id in request.group_ids]
        )

    def reply(response: ConsumerGroupDescribeResponse) -> None:
        if request.include_authorized_operations:
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = group_operations(context, services, group.group_id)
        context.reply(response)

    services.groups.consumer_group_describe(request, reply)
    return None
