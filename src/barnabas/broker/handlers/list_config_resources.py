"""ListConfigResources (74), versions 0-1: resources that can have configs, by type and name (KIP-714, KIP-1142).

Version 0 lists client metrics subscriptions. Version 1 names the types, or lists all five if it names none. All topics
and brokers are listed, with or without configs of their own; groups and client metrics subscriptions only if they have
some. A cluster can have a hundred thousand topics, so the rows are built in steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.common.config_keys import ResourceType
from barnabas.common.errors import ErrorCode
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_Row = ListConfigResourcesResponse.ConfigResource

_SUPPORTED: Final = (
    frozenset({ResourceType.CLIENT_METRICS}),
    frozenset(ResourceType) - {ResourceType.UNKNOWN},
)
#: The number of rows built per step, in about a quarter of a millisecond.
_ROWS_PER_STEP: Final = 250


def handle(
    context: RequestContext, request: ListConfigResourcesRequest, services: Services
) -> ListConfigResourcesResponse | Work:
    supported = _SUPPORTED[context.api_version]
    wanted = frozenset(request.resource_types) or supported
    if not wanted <= supported:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return _in_steps(services.metadata.image, wanted, context.listener)


def _in_steps(
    image: MetadataImage, wanted: frozenset[int], listener: str
) -> Generator[int, None, ListConfigResourcesResponse]:
    response = ListConfigResourcesResponse()
    for number, row in enumerate(_rows(image, wanted, listener), 1):
        if row is not None:
            response.config_resources.append(row)
        if number % _ROWS_PER_STEP == 0:
            yield 1
    return response


def _rows(image: MetadataImage, wanted: frozenset[int], listener: str) -> Iterator[_Row | None]:
    """Yields the rows, ordered by type as in Kafka; None for a resource that was skipped."""
    for configured in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        if configured in wanted:
            for kind, name in image.configs:
                yield _Row(resource_name=name, resource_type=kind) if kind == configured else None
    for of_brokers in (ResourceType.BROKER_LOGGER, ResourceType.BROKER):
        if of_brokers in wanted:
            for broker_id in image.broker_ids():
                if image.brokers[broker_id].endpoint(listener) is not None:
                    yield _Row(resource_name=str(broker_id), resource_type=of_brokers)
    if ResourceType.TOPIC in wanted:
        for name in image.topics_by_name:
            yield _Row(resource_name=name, resource_type=ResourceType.TOPIC)
