"""FindCoordinator (10), versions 0-6: the broker that coordinates a group or a transactional id.

The coordinator is the leader of the id's partition of `__consumer_offsets` or `__transaction_state`; the topic is
created at the first request. KIP-699 (several keys, 4+). Share groups (key type 2) are not supported: INVALID_REQUEST,
as in a Kafka cluster without share groups.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.broker.topics.topic_creation import ensure_internal_topic
from barnabas.common.errors import MALFORMED_REQUEST, ErrorCode
from barnabas.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

ERROR_ROWS: Final = (ErrorRows("coordinators", "coordinator_keys", key="key"),)
PIECES: Final = Pieces(400, "coordinator_keys", "coordinators")


_GROUP: Final = 0
_TRANSACTION: Final = 1
_BATCHED_SINCE: Final = 4
_TEXTS: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: MALFORMED_REQUEST,
}


class Coordinator(NamedTuple):
    """The coordinator of a key, or the error."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


def handle(context: RequestContext, request: FindCoordinatorRequest, services: Services) -> FindCoordinatorResponse:
    if context.api_version < _BATCHED_SINCE:
        found = find(context.listener, request.key_type, request.key, services)
        return FindCoordinatorResponse(
            error_code=found.error,
            error_message=_TEXTS[found.error],
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    response = FindCoordinatorResponse()
    for key in request.coordinator_keys:
        found = find(context.listener, request.key_type, key, services)
        response.coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
                error_code=found.error,
                error_message=_TEXTS[found.error] if found.error is ErrorCode.INVALID_REQUEST else "",
            )
        )
    return response


def find(listener: str, key_type: int, key: str, services: Services) -> Coordinator:
    """Returns the coordinator of a group or transactional id, with its address for clients of this listener."""
    if key_type == _GROUP:
        topic, index = GROUP_METADATA_TOPIC, services.groups.partition_for(key)
    elif key_type == _TRANSACTION:
        topic, index = TRANSACTION_STATE_TOPIC, services.transactions.partition_for(key)
    else:
        return Coordinator(ErrorCode.INVALID_REQUEST)
    image = services.metadata.image
    if topic not in image.topics_by_name:
        ensure_internal_topic(services, topic)
        return Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = image.partition(topic, index)
    broker = image.brokers.get(partition.leader) if partition is not None else None
    endpoint = broker.endpoint(listener) if broker is not None and not broker.fenced else None
    if broker is None or endpoint is None:
        return Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(ErrorCode.NONE, broker.broker_id, endpoint.host, endpoint.port)
