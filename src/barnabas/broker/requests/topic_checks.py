"""Authorization checks of APIs about topics, configurations and log directories whose refusals need their own code."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from barnabas.broker.requests.authorization import (
    CODES,
    TEXTS,
    AuthorizationContext,
    AuthorizationResult,
    AuthorizationSteps,
    Described,
    Rows,
    changed,
    only_rows,
    split,
)
from barnabas.broker.requests.error_responses import PARTITIONS, ErrorRows, error_rows
from barnabas.common.config_keys import ResourceType
from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.controller.requests.topics import UNKNOWN_TOPIC
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest


class CreateTopics(Described):
    """CREATE on the cluster or on each topic; without DESCRIBE_CONFIGS the result does not show configurations."""

    _ROWS = Rows(AclOperation.CREATE, AclResource.TOPIC, ErrorRows("topics", "topics"), "name")

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, CreateTopicsRequest)
        counts = Counter(topic.name for topic in request.topics)
        refused: list[Any] = []
        if not context.allows(AclOperation.CREATE, AclResource.CLUSTER, log_denied=False):
            # Duplicates are refused by the controller, whatever the rights.
            single = [topic for topic in request.topics if counts[topic.name] == 1]
            _, refused = yield from split(context, AclOperation.CREATE, AclResource.TOPIC, single, self._ROWS.name_of)
        rows = self._ROWS.refused(context, request, refused) if refused else []
        for row in rows:
            row.error_message = "Authorization failed."
        names = {topic.name for topic in refused}
        left = [topic for topic in request.topics if topic.name not in names]
        if not left and rows:
            return AuthorizationResult(request, only_rows(request, self._ROWS.shape, rows))

        def amend(response: CreateTopicsResponse) -> CreateTopicsResponse:
            for result in response.topics:
                if result.error_code == ErrorCode.NONE and not context.allows(
                    AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, result.name, log_denied=False
                ):
                    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    result.num_partitions = result.replication_factor = -1
                    result.configs = []
            response.topics.extend(rows)
            return response

        return AuthorizationResult(changed(request, "topics", left), None, amend)


class DeleteTopics(Described):
    """DELETE on the cluster, or DESCRIBE and DELETE on each topic. One that is requested by id is named only to those
    who may describe it; one that is requested by name and hidden is refused whether it exists or not."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, DeleteTopicsRequest)
        if context.allows(AclOperation.DELETE, AclResource.CLUSTER, log_denied=False):
            return AuthorizationResult(request)
        by_name = "topics" if context.version >= 6 else "topic_names"
        rows: list[DeleteTopicsResponse.DeletableTopicResult] = []
        left: list[Any] = []
        for place, topic in enumerate(getattr(request, by_name)):
            refusal = self._refusal(context, topic)
            if refusal is None:
                left.append(topic)
            else:
                rows.append(refusal)
            if place % 50 == 49:
                yield 1
        if not rows:
            return AuthorizationResult(request)
        if not left:
            return AuthorizationResult(request, DeleteTopicsResponse(responses=rows))

        def amend(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
            response.responses.extend(rows)
            return response

        return AuthorizationResult(changed(request, by_name, left), None, amend)

    def _refusal(self, context: AuthorizationContext, topic: Any) -> DeleteTopicsResponse.DeletableTopicResult | None:
        name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else (topic.name, topic.topic_id)
        by_id = name is None
        if by_id:
            known = context.image.topics_by_id.get(topic_id)
            if known is None:
                return None
            name = known.name
        is_known = name in context.image.topics_by_name
        is_shown = context.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name)
        # A denial is not logged for a topic that does not exist.
        if is_shown and context.allows(AclOperation.DELETE, AclResource.TOPIC, name, log_denied=is_known):
            return None
        code, text = ErrorCode.TOPIC_AUTHORIZATION_FAILED, TEXTS[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        if is_shown and not is_known:
            # The controller can know a topic that is not committed yet; it must not delete it for this client.
            code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
        return DeleteTopicsResponse.DeletableTopicResult(
            name=name if is_shown or not by_id else None, topic_id=topic_id, error_code=code, error_message=text
        )


class ListOffsets(Described):
    """DESCRIBE on each topic. A request with a replica id comes from a broker and needs CLUSTER_ACTION."""

    _ROWS = Rows(AclOperation.DESCRIBE, AclResource.TOPIC, ErrorRows("topics", "topics", inner=PARTITIONS), "name")

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, ListOffsetsRequest)
        if request.replica_id < 0:
            outcome = yield from self._ROWS.authorize(context, request)
            return outcome
        if context.allows(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
            return AuthorizationResult(request)
        rows = self._ROWS.refused(context, request, request.topics)
        return AuthorizationResult(request, only_rows(request, self._ROWS.shape, rows))


class Configs:
    """A check for each resource, by its type. The handler refuses unknown types."""

    def __init__(self, operation: AclOperation, shape: ErrorRows) -> None:
        self._operation = operation
        self._shape = shape

    @property
    def required(self) -> str:
        return f"{self._operation.name} on each topic or group, and on the cluster for brokers, loggers and metrics"

    @property
    def refusal(self) -> str:
        return "TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED for each one"

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        left: list[Any] = []
        rows: list[Any] = []
        for place, resource in enumerate(getattr(request, self._shape.of)):
            kind = self._type_of(resource)
            name = () if kind is AclResource.CLUSTER else (resource.resource_name,)
            if kind is None or context.allows(self._operation, kind, *name):
                left.append(resource)
            else:
                code = CODES[kind]
                one = changed(request, self._shape.of, [resource])
                rows += error_rows(one, context.version, code, TEXTS[code], self._shape)
            if place % 50 == 49:
                yield 1
        if not rows:
            return AuthorizationResult(request)
        if not left:
            return AuthorizationResult(request, only_rows(request, self._shape, rows))

        def amend(response: Any) -> Any:
            getattr(response, self._shape.to).extend(rows)
            return response

        return AuthorizationResult(changed(request, self._shape.of, left), None, amend)

    @staticmethod
    def _type_of(resource: Any) -> AclResource | None:
        return _CONFIG_RESOURCES.get(resource.resource_type)


_CONFIG_RESOURCES: Final = {
    ResourceType.TOPIC: AclResource.TOPIC,
    ResourceType.GROUP: AclResource.GROUP,
    ResourceType.BROKER: AclResource.CLUSTER,
    ResourceType.BROKER_LOGGER: AclResource.CLUSTER,
    ResourceType.CLIENT_METRICS: AclResource.CLUSTER,
}


class DescribeLogDirs(Described):
    """DESCRIBE on the cluster; older versions have no field for the refusal and show no directory."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        if context.allows(AclOperation.DESCRIBE, AclResource.CLUSTER):
            return AuthorizationResult(request)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if context.version >= 3 else ErrorCode.NONE
        return AuthorizationResult(request, DescribeLogDirsResponse(error_code=code))
        yield 1
