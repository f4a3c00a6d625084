"""Fetch (1) on a controller's listener, versions 4-18: replication of the metadata log from its leader (KIP-595).

Any other partition is refused with INVALID_REQUEST: data is fetched from brokers.
"""

from __future__ import annotations

from barnabas.broker.requests.client_connection import LONG_FRAME_BYTES
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse

_TOP_LEVEL_ERROR_SINCE = 7


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Chunks | Work | None:
    if len(frame) > LONG_FRAME_BYTES:
        return _decode_and_serve(request, bytes(frame), position, services)
    message, _ = codec.decode(FetchRequest, request.api_version, frame, position)
    if not _is_allowed(request, services):
        return request.encode(_refused(message, request.api_version))
    _serve(request, message, services)
    return None


def _decode_and_serve(request: InFlight, frame: bytes, position: int, services: Services) -> Work:
    """Serves a request that is far too long for one partition, in steps: any client can send it."""
    message, _ = yield from codec.decode_in_steps(FetchRequest, request.api_version, frame, position)
    if _is_allowed(request, services):
        _serve(request, message, services)
    else:
        yield from request.replied_in_steps(_refused(message, request.api_version))


def _is_allowed(request: InFlight, services: Services) -> bool:
    authorizer = services.authorizer
    return authorizer is None or authorizer.allows(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)


def _serve(request: InFlight, message: FetchRequest, services: Services) -> None:
    services.quorum.raft.server.serve(message, request.api_version, request.listener, request.reply)


def _refused(message: FetchRequest, version: int) -> FetchResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if version >= _TOP_LEVEL_ERROR_SINCE:
        return FetchResponse(error_code=code)
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=row.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for row in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
