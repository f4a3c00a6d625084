"""Fetch (1) on a controller's listener, versions 4-18: replication of the metadata log from its leader (KIP-595).

Any other partition is refused with INVALID_REQUEST: data is fetched from brokers.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.in_flight import InFlight
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse

_TOP_LEVEL_ERROR_SINCE = 7


def handle(context: RequestContext, request: FetchRequest, services: Services) -> FetchResponse | None:
    authorizer = services.authorizer
    if authorizer is not None and not authorizer.allows(context, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
        if isinstance(context, InFlight):
            context.refused()
        return _refused(request, context.api_version)
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
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
