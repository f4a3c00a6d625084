"""Fetch (1) on a controller's listener, versions 4-18: replication of the metadata log from its leader (KIP-595).

Any other partition is refused with INVALID_REQUEST: data is fetched from brokers.
"""

from __future__ import annotations

from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse

_TOP_LEVEL_ERROR_SINCE = 7


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Chunks | None:
    message, _ = codec.decode(FetchRequest, request.api_version, frame, position)
    authorizer = services.authorizer
    if authorizer is not None and not authorizer.allows(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
        return request.encode(_refused(message, request.api_version))
    services.quorum.raft.server.serve(message, request.api_version, request.listener, request.reply)
    return None


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
