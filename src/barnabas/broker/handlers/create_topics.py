"""CreateTopics (19), versions 2-7: decided by the controller, answered when the topics are committed.

create.topic.policy.class.name and controller mutation quotas are not supported.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces, new_partitions
from barnabas.protocol.messages.create_topics import CreateTopicsRequest

ERROR_ROWS: Final = (ErrorRows("topics", "topics"),)
PIECES: Final = Pieces(50, "topics", "topics", key="name", answers_once=True, weight_of=new_partitions)


def handle(context: RequestContext, request: CreateTopicsRequest, services: Services) -> None:
    services.controller.create_topics(request, context.reply, actor=context.principal)
