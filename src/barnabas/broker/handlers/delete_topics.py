"""DeleteTopics (20), versions 1-6: by name, or by id from version 6 (KIP-516), answered when it is committed."""

from __future__ import annotations

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

_DISABLED_CODE_SINCE = 3


def handle(context: RequestContext, request: DeleteTopicsRequest, services: Services) -> DeleteTopicsResponse | None:
    if not services.config.bool_of("delete.topic.enable"):
        return _disabled(request, context.api_version)
    services.controller.delete_topics(request, context.reply, actor=context.principal)
    return None


def _disabled(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= _DISABLED_CODE_SINCE else ErrorCode.INVALID_REQUEST
    asked: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    asked += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message="Topic deletion is disabled."
            )
            for name, topic_id in asked
        ]
    )
