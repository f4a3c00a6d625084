"""DeleteTopics (20), versions 1-6: by name, from version 6 also by id (KIP-516); answered when the deletion is
committed.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.mutation_requests import limited
from barnabas.broker.requests.pieces import Pieces
from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.topics import delete_refused
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

ERROR_ROWS: Final = (ErrorRows("responses", "topics"), ErrorRows("responses", "topic_names", key="name"))
PIECES: Final = Pieces(50, "topics", "responses", key="name", answers_once=True)


_DISABLED_CODE_SINCE = 3

#: The first version whose client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE: Final = 5


def handle(context: RequestContext, request: DeleteTopicsRequest, services: Services) -> DeleteTopicsResponse | None:
    if not services.config.bool_of("delete.topic.enable"):
        known = context.api_version >= _DISABLED_CODE_SINCE
        code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        return delete_refused(request, code, "Topic deletion is disabled.")
    permit, reply = limited(context, services, _STRICT_SINCE, DeleteTopicsResponse)
    services.controller.delete_topics(request, reply, actor=context.principal, permit=permit)
    return None
