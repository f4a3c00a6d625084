"""CreateTopics (19), versions 2-7: decided by the controller, answered when the topics are committed.

create.topic.policy.class.name and controller mutation quotas are not supported.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.create_topics import CreateTopicsRequest


def handle(context: RequestContext, request: CreateTopicsRequest, services: Services) -> None:
    services.controller.create_topics(request, context.reply, actor=context.principal)
