"""DescribeConfigs (32), versions 1-4: topics, brokers and their cluster-wide default, loggers, groups, client metrics.

An empty or missing list of keys selects all. Documentation (version 3) is returned for the keys that Barnabas uses.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.configs.config_describe import ConfigEntry, describe
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.common.config_keys import ResourceType
from barnabas.common.errors import RequestFailed
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

ERROR_ROWS: Final = (ErrorRows("results", "resources"),)


def _weight_of(resource: DescribeConfigsRequest.DescribeConfigsResource, _: int) -> int:
    """Returns the weight of a resource: a broker has many more keys than any other resource."""
    return 4 if resource.resource_type == ResourceType.BROKER else 1


PIECES: Final = Pieces(10, "resources", "results", key="resource_name", weight_of=_weight_of)


_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


def handle(context: RequestContext, request: DescribeConfigsRequest, services: Services) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = _Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            entries = describe(services.config, services.metadata.image, resource.resource_type, resource.resource_name)
        except RequestFailed as failure:
            result.error_code = failure.code
            result.error_message = failure.message
        else:
            wanted = set(resource.configuration_keys or ())
            result.configs = [_encode(entry, request) for entry in entries if not wanted or entry.name in wanted]
        response.results.append(result)
    return response


def _encode(entry: ConfigEntry, request: DescribeConfigsRequest) -> _Entry:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return _Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[_Synonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
