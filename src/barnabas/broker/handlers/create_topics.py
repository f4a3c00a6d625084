"""CreateTopics (19), versions 2-7: decided by the controller, answered when the topics are committed.

create.topic.policy.class.name is not supported.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.mutation_requests import limited
from barnabas.broker.requests.pieces import Pieces, new_partitions
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

ERROR_ROWS: Final = (ErrorRows("topics", "topics"),)
PIECES: Final = Pieces(50, "topics", "topics", key="name", answers_once=True, weight_of=new_partitions)

#: The first version whose client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE: Final = 6


def handle(context: RequestContext, request: CreateTopicsRequest, services: Services) -> None:
    permit, reply = limited(context, services, _STRICT_SINCE, CreateTopicsResponse)
    services.controller.create_topics(request, reply, actor=context.principal, permit=permit)
