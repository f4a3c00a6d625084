"""DescribeCluster (60), versions 0-2: cluster id, brokers and a controller (KIP-700, KIP-919, KIP-1073).

On a broker's listener the response lists brokers, on a controller's listener controllers; the request contains the type
of endpoint that the client expects.

A controller that knows no leader delays its response until it does, or for a limited time: Java's tools do not retry
after a response without a controller, and wait until their timeout.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.topics.topic_views import cluster_operations
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_NAMES: Final = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}
#: The longest wait for a leader: longer than most elections, and shorter than clients' request timeouts.
_ELECTION_MS_MAX: Final = 10_000
_CHECK_MS: Final = 50


def handle(
    context: RequestContext, request: DescribeClusterRequest, services: Services
) -> DescribeClusterResponse | None:
    own_type = _CONTROLLERS if context.listener in services.config.controller_listener_names else _BROKERS
    if request.endpoint_type != own_type:
        return _refuse(request.endpoint_type, own_type, context.api_version)
    if own_type == _CONTROLLERS:
        return _controllers_when_known(context, services)
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
    response.controller_id = services.side.shown_controller(alive)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context, services)
    return response


def _controllers_when_known(context: RequestContext, services: Services) -> DescribeClusterResponse | None:
    if services.controller.leader_id >= 0:
        return _controllers(context.listener, services)
    clock, timers = services.host.clock, services.host.timers
    deadline_ms = clock.now_ms() + _ELECTION_MS_MAX

    def check() -> None:
        if services.controller.leader_id < 0 and clock.now_ms() < deadline_ms:
            timers.call_later(_CHECK_MS, check)
        else:
            context.reply(_controllers(context.listener, services))

    timers.call_later(_CHECK_MS, check)
    return None


def _controllers(listener: str, services: Services) -> DescribeClusterResponse:
    response = DescribeClusterResponse(cluster_id=services.cluster_id, endpoint_type=_CONTROLLERS)
    for controller_id, controller in sorted(services.metadata.image.controllers.items()):
        for endpoint in controller.endpoints:
            if endpoint.name == listener:
                response.brokers.append(
                    DescribeClusterResponse.DescribeClusterBroker(
                        broker_id=controller_id, host=endpoint.host, port=endpoint.port
                    )
                )
    response.controller_id = services.controller.leader_id
    return response


def _refuse(wanted_type: int, own_type: int, version: int) -> DescribeClusterResponse:
    if wanted_type in _NAMES:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if version >= 1 else ErrorCode.INVALID_REQUEST
        text = (
            f"The request was sent to an endpoint of type {_NAMES[own_type]}, but we wanted an endpoint of type "
            f"{_NAMES[wanted_type]}"
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if version >= 1 else ErrorCode.INVALID_REQUEST
        text = f"Unsupported endpoint type {wanted_type}"
    return DescribeClusterResponse(error_code=code, error_message=text)
