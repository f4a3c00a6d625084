"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch, with which clients and followers find
divergence.

KIP-101, KIP-279 (the response can contain a lower epoch), KIP-320 (fencing, clients).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests import pieces
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import TOPICS
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

ERROR_ROWS: Final = (TOPICS,)
PIECES: Final = pieces.topics(300, key="topic")


def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest, services: Services
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        rows = []
        for requested in topic.partitions:
            row = OffsetForLeaderEpochResponse.EpochEndOffset(
                partition=requested.partition, leader_epoch=-1, end_offset=-1
            )
            try:
                partition = services.replicas.leader(topic.topic, requested.partition)
                row.error_code = partition.check_epoch(requested.current_leader_epoch)
                if row.error_code == ErrorCode.NONE:
                    row.leader_epoch, row.end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
            except RequestFailed as failure:
                row.error_code = failure.code
            rows.append(row)
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows)
        )
    return response
