"""DescribeCluster (60), versions 0-2: cluster id, brokers and a controller (KIP-700, KIP-919, KIP-1073).

Asked on a broker's listener it describes brokers; the controllers' own endpoint type is answered by controllers only.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.context import RequestContext, Services
from barnabas.broker.topic_views import CLUSTER_OPERATIONS
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_NO_CONTROLLER: Final = -1


def handle(context: RequestContext, request: DescribeClusterRequest, services: Services) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return _refuse(request.endpoint_type, context.api_version)
    response = DescribeClusterResponse(cluster_id=services.cluster_id, endpoint_type=_BROKERS)
    alive: list[int] = []
    for broker_id, broker in sorted(services.metadata.image.brokers.items()):
        endpoint = broker.endpoint(context.listener)
        if endpoint is None:
            continue
        if not broker.fenced:
            alive.append(broker_id)
        elif not request.include_fenced_brokers:
            continue
        response.brokers.append(
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    response.controller_id = alive[services.host.random.below(len(alive))] if alive else _NO_CONTROLLER
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _refuse(endpoint_type: int, version: int) -> DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if version >= 1 else ErrorCode.INVALID_REQUEST
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if version >= 1 else ErrorCode.INVALID_REQUEST
        text = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=text)
